"""What ``advnorm list`` shows: every name of every registry, with a line each."""

from advnorm.attacks import ATTACKS
from advnorm.data import AUGMENTATIONS, DATA
from advnorm.models import MODELS
from advnorm.norms import NORMS
from advnorm.objectives import OBJECTIVES
from advnorm.recipes import RECIPES
from advnorm.registry import Registry, unknown

KINDS: dict[str, Registry] = {  # type: ignore[type-arg]
    "recipes": RECIPES,
    "data": DATA,
    "augmentations": AUGMENTATIONS,
    "models": MODELS,
    "norms": NORMS,
    "objectives": OBJECTIVES,
    "attacks": ATTACKS,
}


def listing(kind: str) -> str:
    """Return the names of one kind, or of all."""
    if kind != "all" and kind not in KINDS:
        raise unknown("kind of name", kind, ["all", *KINDS])
    chosen = KINDS if kind == "all" else {kind: KINDS[kind]}
    return "\n\n".join(_section(title, registry) for title, registry in chosen.items())


def _section(title: str, registry: Registry) -> str:  # type: ignore[type-arg]
    width = max(len(name) for name in registry)
    lines = [f"  {name:<{width}}  {_plain(registry.summary(name))}" for name in registry]
    return "\n".join([title, *lines])


def _plain(text: str) -> str:
    """Drop the marks of a docstring that a terminal does not need."""
    return text.replace("``", "")
