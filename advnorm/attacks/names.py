"""The one parser of attack names: ``FAMILY[-STEPS][xRESTARTS][+OPTION...]``.

``fgsm``, ``bim-10``, ``pgd-50x5`` (five restarts), ``pgd-10..2000`` (the accuracy after 10
to 2000 steps of one run), ``pgd-2000+random+step=1/255``. A number or an option that means
nothing to its attack is refused. :class:`NameForm` reads other names of the same form.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

from advnorm.attacks.registry import ATTACKS, AttackEntry
from advnorm.attacks.target_order import CANDIDATES
from advnorm.numbers import parse_number
from advnorm.registry import unknown

_CURVE_STEP = 1 / 16
"""Step size of a curve, as a share of eps: xie2020, section 3, steps by 1 in a ball of 16.
"""


class NameOption(NamedTuple):
    """A word after a plus: what it sets, and the number that it takes."""

    sets: str
    number: str = ""
    """The name of the number; empty where there is none."""
    optional: bool = False
    meaning: str = ""

    def form(self, word: str) -> str:
        """Write how it is used: ``+clean[=SHARE]``."""
        number = f"={self.number}" if self.number else ""
        return f"+{word}[{number}]" if self.optional else f"+{word}{number}"


class NamePart(NamedTuple):
    """A number inside a name: how it is matched, written and explained."""

    pattern: str
    form: str
    meaning: str


class NameValues(NamedTuple):
    """What a name says: its numbers as text, and its options."""

    numbers: dict[str, str]
    options: dict[str, float | None]


@dataclass(frozen=True)
class NameForm:
    """How the names of one family are written."""

    family: str
    parts: tuple[NamePart, ...] = ()
    options: Mapping[str, NameOption] = field(default_factory=dict)

    def __str__(self) -> str:
        more = "[+OPTION]" if self.options else ""
        form = self.family + "".join(part.form for part in self.parts) + more
        meanings = [part.meaning for part in self.parts]
        if more:
            forms = (option.form(word) for word, option in self.options.items())
            meanings.append(f"OPTION one of {', '.join(forms)}")
        return f"{form}, {' and '.join(meanings) or 'without a number'}"

    def read(self, text: str) -> NameValues:
        """Read a name in full, or refuse it with a sentence that says how to write it."""
        head, *words = text.split("+")
        pattern = "".join(part.pattern for part in self.parts)
        match = re.fullmatch(pattern, head.removeprefix(self.family))
        if not match:
            raise refusal(text, f"write {self}")
        options: dict[str, float | None] = {}
        for option in words:
            word, equals, number = option.partition("=")
            value = self._option(text, word, number if equals else None)
            for other in options:
                if self.options[word].sets == self.options[other].sets:
                    raise refusal(
                        text, f"+{other} and +{word} decide the same, leave one out"
                    )
            options[word] = value
        return NameValues({k: v for k, v in match.groupdict().items() if v}, options)

    def _option(self, text: str, word: str, number: str | None) -> float | None:
        """Return the number of an option, ``None`` where it has none."""
        if not self.options:
            raise refusal(text, f"write {self}")
        if word not in self.options:
            raise unknown(f"option of {self.family}", word, list(self.options))
        option = self.options[word]
        if number is None and (option.optional or not option.number):
            return None
        value = _positive(number) if number and option.number else 0.0
        is_wrong = {"SHARE": value > 1, "PIXELS": bool(value % 1)}
        if not value or is_wrong.get(option.number):
            raise refusal(text, f"write {option.form(word)}, {_KINDS[option.number]}")
        return value


ATTACK_OPTIONS = {
    "random": NameOption("goal", meaning="towards a wrong class drawn for each sample"),
    "least_likely": NameOption(
        "goal", meaning="towards the class that the model finds least likely"
    ),
    "clean": NameOption(
        "clean_start",
        "SHARE",
        optional=True,
        meaning="start at the clean image, always or with this probability",
    ),
    "step": NameOption(
        "step_size", "LENGTH", meaning="the step size, such as 1/255, in the norm's units"
    ),
    "ratio": NameOption("step_size", "RATIO", meaning="step size = RATIO x eps / STEPS"),
    "malt": NameOption(
        "order", meaning="targets by distance to first order, nearest first (MALT)"
    ),
    "last": NameOption("curve", meaning="count each last iterate alone, as xie2020 does"),
}
"""By word; an attack takes those that set an argument of its function."""


@dataclass(frozen=True)
class AttackName:
    """The name of an attack, parsed."""

    text: str
    entry: AttackEntry
    steps: int
    """0 for an attack without steps."""
    restarts: int = 1
    counts: tuple[int, ...] = ()
    """The step counts of a curve; empty for anything else."""
    options: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """The name of the goal: ``none``, ``random`` or ``least_likely``."""
        words = (word for word in self.options if ATTACK_OPTIONS[word].sets == "goal")
        return next(words, "none")

    @property
    def order(self) -> str:
        """The name of the order of target classes: ``likeliest`` or ``malt``."""
        words = (word for word in self.options if ATTACK_OPTIONS[word].sets == "order")
        return next(words, "likeliest")

    @property
    def clean_start(self) -> float:
        """The probability to start at the clean image."""
        share = self.options.get("clean", 0.0)
        return 1.0 if share is None else share

    @property
    def last(self) -> bool:
        """Of a curve: whether each last iterate counts alone."""
        return "last" in self.options

    @property
    def random_stream(self) -> str:
        """The name of its random numbers.

        With a step size that does not depend on the number of steps, more steps go on
        where fewer ended: such names share their starts.
        """
        if not self.counts and "step" not in self.options:
            return self.text
        aside = ("step", "last")
        return "+".join([self.entry.name, *(w for w in self.options if w not in aside)])

    @property
    def passes(self) -> int:
        """Forward passes for one sample, at most; a gradient counts as two more.

        >>> parse_attack("pgd-10x2").passes, parse_attack("apgd_t-100").passes
        (60, 2700)
        """
        ranking = 2 * CANDIDATES if self.order == "malt" else 0
        return self.restarts * (self.entry.passes(self.steps) + ranking)

    def passes_with(self, classes: int) -> int:
        """Return the passes with this number of classes, fewer where targets are fewer.

        >>> parse_attack("apgd_t-100").passes_with(10), parse_attack("fab_t").passes_with(3)
        (2700, 600)
        """
        targets = min(self.entry.targets, max(1, classes - 1))
        return self.passes * targets // self.entry.targets

    def step_size(self, eps: float, *, ratio: float) -> float:
        """Return the step size: as the name says, else ``ratio`` x eps / steps."""
        length, own_ratio = self.options.get("step"), self.options.get("ratio")
        if length is not None:
            return length
        if self.counts:
            return _CURVE_STEP * eps
        return (own_ratio or ratio) * eps / self.steps


def parse_attack(text: str) -> AttackName:
    """Read the name of one attack.

    >>> name = parse_attack("pgd-20x3+random")
    >>> name.entry.name, name.steps, name.restarts, name.target
    ('pgd', 20, 3, 'random')
    """
    entry = ATTACKS[family_of(text)]
    numbers, options = attack_form(entry).read(text)
    steps = int(numbers.get("steps", 0)) or entry.default_steps
    counts = step_counts(int(numbers["first"]), steps) if "first" in numbers else ()
    restarts = int(numbers.get("restarts", 1))
    name = AttackName(text, entry, steps, restarts, counts, options)
    _refuse_contradictions(name)
    return name


def family_of(text: str) -> str:
    """Return a name without its numbers and options."""
    head = re.match(r"[a-z_]+?(?=-|\+|x[0-9]|\Z)", text)
    return head[0] if head else text


def attack_form(entry: AttackEntry) -> NameForm:
    """Return how names of an attack are written."""
    parts = []
    if "steps" in entry.parameters:
        parts.append(_CURVE if entry.curve else _STEPS)
    if not entry.from_clean:
        parts.append(_RESTARTS)
    arguments = entry.parameters | ({"curve"} if entry.curve else set())
    words = {word: o for word, o in ATTACK_OPTIONS.items() if o.sets in arguments}
    return NameForm(entry.name, tuple(parts), words)


def step_counts(first: int, last: int) -> tuple[int, ...]:
    """Return the step counts of a curve: its ends, and 1, 2, 5, 10, ... between them.

    >>> step_counts(10, 2000), step_counts(3, 7), step_counts(9, 4)
    ((10, 20, 50, 100, 200, 500, 1000, 2000), (3, 5, 7), ())
    """
    if first >= last:
        return ()
    series = (digit * 10**power for power in range(len(str(last))) for digit in (1, 2, 5))
    return (first, *(count for count in series if first < count < last), last)


def refusal(text: str, advice: str) -> ValueError:
    """Return the error for a name that means nothing, with what to write instead."""
    return ValueError(f"{text!r} is not understood: {advice}")


def _positive(text: str) -> float:
    """Read a number > 0; return 0 for anything else."""
    try:
        value = parse_number(text) if re.fullmatch(r"[0-9./e-]+", text) else 0.0
    except ValueError:
        return 0.0
    return value if isfinite(value) and value > 0 else 0.0


def _refuse_contradictions(name: AttackName) -> None:
    if ".." in name.text and not name.counts:
        raise refusal(name.text, "the step counts of a curve increase, as in 10..2000")
    if name.last and not name.counts:
        raise refusal(name.text, "+last is for a curve, such as 10..2000+last")
    if "ratio" in name.options and name.counts:
        raise refusal(name.text, "a curve has one step size, write +step=LENGTH")
    if name.restarts > 1 and name.clean_start == 1 and name.target != "random":
        raise refusal(
            name.text, f"from the clean image x{name.restarts} repeats itself, leave it out"
        )


_WHOLE = r"[1-9][0-9]{0,8}"
_STEPS = NamePart(rf"(?:-(?P<steps>{_WHOLE}))?", "[-STEPS]", "STEPS a whole number from 1")
_CURVE = NamePart(
    rf"(?:-(?:(?P<first>{_WHOLE})\.\.)?(?P<steps>{_WHOLE}))?",
    "[-STEPS]",
    "STEPS a whole number from 1 or a curve such as 10..2000",
)
_RESTARTS = NamePart(
    rf"(?:x(?P<restarts>{_WHOLE}))?", "[xRESTARTS]", "RESTARTS a whole number from 1"
)
_KINDS = {
    "": "without a number",
    "SHARE": "SHARE a probability > 0 and <= 1",
    "LENGTH": "LENGTH a number > 0 such as 1/255",
    "RATIO": "RATIO a number > 0 such as 2.5",
    "PIXELS": "PIXELS a whole number from 1",
}
