"""Training: the only part that turns a recipe into objects."""

from advnorm.data import every_set
from advnorm.train.assess import assess
from advnorm.train.auditing import audit_run
from advnorm.train.build import Job, build, check
from advnorm.train.diagnosing import diagnose_model, diagnose_run, questions
from advnorm.train.guards import NotFiniteError
from advnorm.train.parts import load, network
from advnorm.train.perturb import perturb
from advnorm.train.run import how_to_resume, train
from advnorm.train.stop import StoppedError
from advnorm.train.subject import load_model
from advnorm.train.transfer import transfer_runs

__all__ = [
    "Job",
    "NotFiniteError",
    "StoppedError",
    "assess",
    "audit_run",
    "build",
    "check",
    "diagnose_model",
    "diagnose_run",
    "every_set",
    "how_to_resume",
    "load",
    "load_model",
    "network",
    "perturb",
    "questions",
    "train",
    "transfer_runs",
]
