"""The names of cells, read in full or refused with a sentence.

``FAMILY[-STEPS][xRESTARTS][+OPTION...]``: ``clean``, ``noise-0.25`` (standard deviation),
``corruption-fog-3`` (severity), ``fgsm``, ``bim-10``, ``pgd-50x5`` (five restarts),
``pgd-10..2000`` (the accuracy curve of one run), ``pgd-2000+random+step=1/255``, or a suite
of attacks. A number or an option that means nothing to its attack is refused.
"""

import re
from fractions import Fraction
from inspect import signature
from typing import NamedTuple

from advnorm.attacks import ATTACKS, FROM_CLEAN
from advnorm.bounds.methods import METHODS
from advnorm.registry import unknown

NATURAL = ("clean", "noise", "corruption")

_AUTO_ATTACK = ("apgd_ce-100", "apgd_t-100", "fab_t-100", "square-5000")
SUITES = {
    "quick": ("pgd-20", "apgd_ce-50"),
    "strong": ("apgd_ce-50", "apgd_t-20", "square-500"),
    "standard": _AUTO_ATTACK,
    "full": (*_AUTO_ATTACK, "apgd_dlr-100x5", "pgd-200x5"),
}
"""Attacks in turn, the worst case a sample; ``standard`` is AutoAttack's (Croce & Hein).

``strong`` has the same kinds of attacks, shorter.
"""


class Option(NamedTuple):
    """A word after a plus: what it sets, and the number that it takes."""

    sets: str
    number: str = ""
    """The name of the number; empty where there is none."""
    optional: bool = False
    means: str = ""

    def form(self, word: str) -> str:
        """Write how it is used: ``+clean[=SHARE]``."""
        number = f"={self.number}" if self.number else ""
        return f"+{word}[{number}]" if self.optional else f"+{word}{number}"


OPTIONS = {
    "random": Option("aim", means="towards a wrong class drawn for each sample"),
    "least_likely": Option("aim", means="towards the class least like the clean image"),
    "clean": Option(
        "clean_start",
        "SHARE",
        optional=True,
        means="from the clean image, all or with this probability",
    ),
    "step": Option("step_size", "LENGTH", means="a step in units of the norm, as 1/255"),
    "ratio": Option("step_size", "RATIO", means="a step = RATIO x eps / STEPS"),
    "last": Option("curve", means="judge each last iterate alone, as xie2020 does"),
    "unclipped": Option("sigma", means="noise that may leave the image bounds"),
    "tile": Option(
        "noise", "PIXELS", means="noise of one value for each tile of so many pixels a side"
    ),
}
"""By word; an attack takes those that set something that it has."""


class Name(NamedTuple):
    """A cell's name, and what it says."""

    text: str
    family: str
    steps: int
    """0 for what takes no steps."""
    restarts: int
    sigma: float
    counts: tuple[int, ...]
    """The step counts of a curve; empty for anything else."""
    options: dict[str, float | None]
    corruption: str = ""
    severity: int = 0

    @property
    def target(self) -> str:
        """The name of the aim."""
        return next((word for word in self.options if OPTIONS[word].sets == "aim"), "none")

    @property
    def clean_start(self) -> float:
        """The probability to start at the clean image."""
        share = self.options.get("clean", 0.0)
        return 1.0 if share is None else share

    @property
    def path(self) -> str:
        """What decides the random start.

        With a step size that does not depend on the number of steps, more steps go on
        where fewer ended: such names share their starts.
        """
        if not self.counts and "step" not in self.options:
            return self.text
        aside = ("step", "last")
        return "+".join([self.family, *(w for w in self.options if w not in aside)])


def parse(text: str) -> Name:
    """Read the name of one attack, or of what has no adversary."""
    head, *words = text.split("+")
    family, known = family_of(text), [*NATURAL, *ATTACKS, *SUITES, *METHODS]
    if family in SUITES:
        raise ValueError(
            f"{text!r} is not understood: the suite {family} takes no number, and no option"
        )
    if family not in known:
        raise unknown("attack", family, known)
    numbers = _numbers(family)
    pattern = "".join(_NUMBERS[number].pattern for number in numbers)
    match = re.fullmatch(pattern, head.removeprefix(family))
    if not match:
        raise _refusal(text, f"write {_form(family)}")
    given = {key: value for key, value in match.groupdict().items() if value}
    steps = int(given.get("steps", 0)) or _steps(family)
    name = Name(
        text,
        family,
        steps=steps,
        restarts=int(given.get("restarts", 1)),
        sigma=float(given.get("sigma", 0.25)),
        counts=counts(int(given["first"]), steps) if "first" in given else (),
        options=dict(_option(text, family, word) for word in words),
        corruption=given.get("corruption", ""),
        severity=int(given.get("severity", 0)),
    )
    _refuse_contradictions(name, words)
    return name


def family_of(text: str) -> str:
    """Return a name without its numbers and options."""
    head = re.match(r"[a-z_]+?(?=-|\+|x[0-9]|\Z)", text)
    return head[0] if head else text


def options_of(family: str) -> list[str]:
    """Return the options that an attack takes, as they are written."""
    return [OPTIONS[word].form(word) for word in _words(family)]


def counts(first: int, last: int) -> tuple[int, ...]:
    """Return the step counts of a curve: its ends, and 1, 2, 5, 10, ... between them.

    >>> counts(10, 2000), counts(3, 7), counts(9, 4)
    ((10, 20, 50, 100, 200, 500, 1000, 2000), (3, 5, 7), ())
    """
    if first >= last:
        return ()
    series = (digit * 10**power for power in range(len(str(last))) for digit in (1, 2, 5))
    return (first, *(count for count in series if first < count < last), last)


def _option(text: str, family: str, word: str) -> tuple[str, float | None]:
    word, equals, number = word.partition("=")
    words = _words(family)
    if word not in words:
        if not words:
            raise _refusal(text, f"write {_form(family)}")
        raise unknown(f"option of {family}", word, words)
    option = OPTIONS[word]
    if not equals and (option.optional or not option.number):
        return word, None
    value = _value(number) if equals and option.number else 0.0
    is_wrong = {"SHARE": value > 1, "PIXELS": bool(value % 1)}
    if not value or is_wrong.get(option.number):
        raise _refusal(text, f"write {option.form(word)}, {_KINDS[option.number]}")
    return word, value


def _value(number: str) -> float:
    """Read a decimal or a fraction; 0 is anything else."""
    plain = re.fullmatch(r"[0-9]*\.?[0-9]+(e-?[0-9]+)?|[0-9]+/[1-9][0-9]*", number)
    return float(Fraction(number)) if plain else 0.0


def _refuse_contradictions(name: Name, words: list[str]) -> None:
    heads = [word.partition("=")[0] for word in words]
    for number, word in enumerate(heads):
        for other in heads[:number]:
            if OPTIONS[word].sets == OPTIONS[other].sets:
                raise _refusal(
                    name.text, f"+{other} and +{word} decide the same, leave one out"
                )
    if ".." in name.text and not name.counts:
        raise _refusal(name.text, "a curve goes up, as in 10..2000")
    if "last" in name.options and not name.counts:
        raise _refusal(name.text, "+last is for a curve, such as 10..2000+last")
    if "ratio" in name.options and name.counts:
        raise _refusal(name.text, "a curve has one step size, write +step=LENGTH")
    if name.restarts > 1 and name.clean_start == 1 and name.target != "random":
        raise _refusal(
            name.text, f"from the clean image x{name.restarts} repeats itself, leave it out"
        )


def _refusal(text: str, advice: str) -> ValueError:
    return ValueError(f"{text!r} is not understood: {advice}")


def _form(family: str) -> str:
    """Write how a family's names look, and what the numbers mean."""
    numbers, more = _numbers(family), "[+OPTION]" if _words(family) else ""
    form = family + "".join(_NUMBERS[number].form for number in numbers) + more
    means = [_NUMBERS[number].means for number in numbers]
    if more:
        means.append(f"OPTION one of {', '.join(options_of(family))}")
    return f"{form}, {' and '.join(means) or 'without a number'}"


def _numbers(family: str) -> list[str]:
    """Return which numbers may follow the name of a family, in their order."""
    if family in NATURAL:
        return {"noise": ["sigma"], "corruption": ["corruption"]}.get(family, [])
    parameters = signature(ATTACKS[family]).parameters
    steps = [] if "steps" not in parameters else ["steps" if family != "pgd" else "curve"]
    return steps + ["restarts"] * (family not in FROM_CLEAN)


def _words(family: str) -> list[str]:
    """Return the options that mean something to a family."""
    natural = family in NATURAL
    parameters = () if natural else signature(ATTACKS[family]).parameters
    has = {family, *parameters, *_numbers(family)}
    return [word for word, option in OPTIONS.items() if option.sets in has]


def _steps(family: str) -> int:
    """Return the steps that an attack takes where its name has no number."""
    if not {"steps", "curve"} & set(_numbers(family)):
        return 0
    default = signature(ATTACKS[family]).parameters["steps"].default
    return default if isinstance(default, int) else 10


class _Number(NamedTuple):
    """How a number in a name is matched, and explained."""

    pattern: str
    form: str
    means: str


_WHOLE = r"[1-9][0-9]{0,8}"
_NUMBERS = {
    "steps": _Number(
        rf"(?:-(?P<steps>{_WHOLE}))?", "[-STEPS]", "STEPS a whole number from 1"
    ),
    "curve": _Number(
        rf"(?:-(?:(?P<first>{_WHOLE})\.\.)?(?P<steps>{_WHOLE}))?",
        "[-STEPS]",
        "STEPS a whole number from 1 or a curve such as 10..2000",
    ),
    "restarts": _Number(
        rf"(?:x(?P<restarts>{_WHOLE}))?", "[xRESTARTS]", "RESTARTS a whole number from 1"
    ),
    "sigma": _Number(
        r"(?:-(?P<sigma>(?=[0-9.]*[1-9])[0-9]*\.?[0-9]+))?",
        "[-SIGMA]",
        "SIGMA a standard deviation > 0",
    ),
    "corruption": _Number(
        r"-(?P<corruption>[a-z_]+)-(?P<severity>[1-5])",
        "-NAME-SEVERITY",
        "NAME of 'advnorm list corruptions' and SEVERITY from 1 to 5",
    ),
}
_KINDS = {
    "": "without a number",
    "SHARE": "SHARE a probability > 0 and <= 1",
    "LENGTH": "LENGTH a number > 0 such as 1/255",
    "RATIO": "RATIO a number > 0 such as 2.5",
    "PIXELS": "PIXELS a whole number from 1",
}
