"""The page of every name that recipes and commands know, from the registries."""

from docstrings import one_line

from advnorm.listing import KINDS, OPTIONS
from advnorm.listing import summary as line_of
from advnorm.papers import ARTEFACTS

TITLES = {
    "recipes": ("Recipes", "`advnorm train NAME`."),
    "data": ("Data sets", "`data.name`."),
    "augmentations": ("Augmentations", "`data.augment`."),
    "models": ("Models", "`model.name`; settings are `model.options`."),
    "norms": ("Norms", "`norm.name`; settings are `norm.options`."),
    "objectives": ("Objectives", "`objective.name`; settings are keys of `objective`."),
    "gradients": ("Gradient rules", "`gradient.name`; settings are keys of `gradient`."),
    "attacks": ("Attacks", "In `evaluation.conditions`, such as `pgd-50x5`."),
    "certificates": ("Certificates", "`advnorm certify --method`."),
    "corruptions": ("Corruptions", "The condition `corruption-NAME-SEVERITY`."),
    "checks": ("Checks of an audit", "`advnorm audit`."),
    "surrogates": (
        "Surrogates of layers",
        "`evaluation.adapt.layers`: [Adaptive attacks](../how-to/adaptive.md).",
    ),
    "questions": ("Questions", "`advnorm diagnose RUN NAME`."),
    "formats": ("Export formats", "`advnorm export --to`."),
}


def page() -> str:
    """Return the page."""
    intro = (
        "What `advnorm list` prints: every name, what it means, and its settings with "
        "their defaults."
    )
    parts = ["# Names", intro, *(_section(kind) for kind in KINDS), _papers()]
    return "\n\n".join(parts) + "\n"


def _section(kind: str) -> str:
    title, where = TITLES[kind]
    head = "| name | meaning | settings |\n|---|---|---|"
    rows = [
        f"| `{name}` | {one_line(line_of(kind, name))} | {_settings(kind, name)} |"
        for name in KINDS[kind]
    ]
    return "\n".join([f"## {title}\n\n{where}\n", head, *rows])


def _settings(kind: str, name: str) -> str:
    settings = OPTIONS[kind](name) if kind in OPTIONS else {}
    words = {True: "true", False: "false", None: "null"}
    shown = [
        f"`{key}={words[value] if isinstance(value, bool | None) else value}`"
        for key, value in settings.items()
    ]
    return ", ".join(shown) or "–"


def _papers() -> str:
    rows = [f"| `{name}` | {one_line(ARTEFACTS[name].title)} |" for name in ARTEFACTS]
    where = "`advnorm reproduce NAME`; claims and costs: `advnorm list papers`."
    head = "| name | what it shows |\n|---|---|"
    return "\n".join([f"## Tables and figures of the papers\n\n{where}\n", head, *rows])
