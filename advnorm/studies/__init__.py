"""Many runs compared: grids of runs, and the study that answers which setting to choose."""

from advnorm.studies.api import cost_text, run_study, study
from advnorm.studies.combinations import parse_over

__all__ = ["cost_text", "parse_over", "run_study", "study"]
