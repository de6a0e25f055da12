"""How long a recipe takes on this machine: counts of its work, times calibrated costs.

``calibrate`` times short pieces of the recipe's own work (:mod:`.measure`): training steps
of each kind, each attack at a few steps, each certificate on a few images, checkpoints. The
costs are kept in the user's cache folder (:mod:`.calibration`). ``forecast`` counts how
often a training, an evaluation and a certification do each piece (:mod:`.workload`), and
multiplies.
"""

from advnorm.runs.forecast.calibration import Calibration, CallCost, Machine, load, store
from advnorm.runs.forecast.measure import calibrate
from advnorm.runs.forecast.times import Forecast, forecast, table
from advnorm.runs.forecast.workload import Accuracies

__all__ = [
    "Accuracies",
    "Calibration",
    "CallCost",
    "Forecast",
    "Machine",
    "calibrate",
    "forecast",
    "load",
    "store",
    "table",
]
