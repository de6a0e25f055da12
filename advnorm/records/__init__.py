"""The run folder and its typed records. Anything printed is recomputed from here.

A run folder holds ``recipe.yaml``, ``environment.json``, ``metrics.jsonl`` (a line an
epoch), ``checkpoints/``, ``results/*.json`` (one condition each), ``verdicts/*.json`` (one
verdict per sample, the same names), ``examples/*.safetensors`` (a few images, the same
names), ``diagnoses/*.json`` (one question each), ``monitor.jsonl`` (measurements of single
training steps), ``audits/*.json`` (is the robustness real?) and ``report.html``. Nothing
here imports torch, so that a report can be made anywhere.
"""

from advnorm.records.artefacts import (
    MARKS,
    SCALES,
    ClaimResult,
    ImageVerdicts,
    LedgerEntry,
    Measured,
    Published,
    Reproduction,
    Scale,
    Verdict,
    counted,
)
from advnorm.records.audits import Audit, Check, with_flags
from advnorm.records.base import Accuracy, Record, Setting, ThreatRecord
from advnorm.records.compiling import CompileDecision
from advnorm.records.completion import TrainingProgress, mark_of
from advnorm.records.diagnoses import Diagnosis, Panel, Picture, Series
from advnorm.records.draws import DrawsSummary, draws_note, summarize_draws
from advnorm.records.environment import Environment
from advnorm.records.headline import Headline, headlines, run_headlines
from advnorm.records.monitoring import MonitoredStep, over_training
from advnorm.records.planted import PlantedTest
from advnorm.records.radii import (
    Bracket,
    MedianRadius,
    RadiiSummary,
    summarize_radii,
)
from advnorm.records.reading import first_mistake, read_record
from advnorm.records.reproductions import (
    Reproductions,
    holds_reproductions,
    read_reproduction,
    reproductions,
)
from advnorm.records.results import (
    ADAPTED,
    ConditionKind,
    Epoch,
    Result,
    TransferMatrix,
    Verdicts,
    result_key,
)
from advnorm.records.run import Run, RunLostError
from advnorm.records.studies import Study, StudyComparison, StudyNumber, StudyRow

__all__ = [
    "ADAPTED",
    "MARKS",
    "SCALES",
    "Accuracy",
    "Audit",
    "Bracket",
    "Check",
    "ClaimResult",
    "CompileDecision",
    "ConditionKind",
    "Diagnosis",
    "DrawsSummary",
    "Environment",
    "Epoch",
    "Headline",
    "ImageVerdicts",
    "LedgerEntry",
    "Measured",
    "MedianRadius",
    "MonitoredStep",
    "Panel",
    "Picture",
    "PlantedTest",
    "Published",
    "RadiiSummary",
    "Record",
    "Reproduction",
    "Reproductions",
    "Result",
    "Run",
    "RunLostError",
    "Scale",
    "Series",
    "Setting",
    "Study",
    "StudyComparison",
    "StudyNumber",
    "StudyRow",
    "ThreatRecord",
    "TrainingProgress",
    "TransferMatrix",
    "Verdict",
    "Verdicts",
    "counted",
    "draws_note",
    "first_mistake",
    "headlines",
    "holds_reproductions",
    "mark_of",
    "over_training",
    "read_record",
    "read_reproduction",
    "reproductions",
    "result_key",
    "run_headlines",
    "summarize_draws",
    "summarize_radii",
    "with_flags",
]
