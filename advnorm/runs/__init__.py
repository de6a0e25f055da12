"""The functions on a run folder: evaluate, audit, diagnose, transfer, export, plan."""

from advnorm.runs.audit import audit_run
from advnorm.runs.diagnose import diagnose_model, diagnose_run, parse_questions
from advnorm.runs.evaluate import certify_run, evaluate_run
from advnorm.runs.export import export_model
from advnorm.runs.load import load_model, load_trained
from advnorm.runs.perturb import perturb_run
from advnorm.runs.transfer import transfer_runs

__all__ = [
    "audit_run",
    "certify_run",
    "diagnose_model",
    "diagnose_run",
    "evaluate_run",
    "export_model",
    "load_model",
    "load_trained",
    "parse_questions",
    "perturb_run",
    "transfer_runs",
]
