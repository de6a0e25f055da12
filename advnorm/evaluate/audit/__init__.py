"""Is this robustness real? ``advnorm.evaluate.audit(model, images, labels, eps=8/255)``."""

import sys
from types import ModuleType

from advnorm.evaluate.audit.examine import audit, probe
from advnorm.evaluate.audit.subject import CHECKS
from advnorm.records import Audit, Check

__all__ = ["CHECKS", "Audit", "Check", "audit", "probe"]


class _CallableModule(ModuleType):
    """``evaluate.audit(...)`` is the function, ``evaluate.audit.x`` are its parts."""

    __call__ = staticmethod(audit)


sys.modules[__name__].__class__ = _CallableModule
