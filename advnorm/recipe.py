"""What a run is made of: frozen, typed, validated; YAML in and out; ``8/255`` accepted."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from advnorm import schedules
from advnorm.threat import THREATS, Threat

Mode = Literal["train", "batch", "running"]


class RecipeError(ValueError):
    """A recipe that cannot be run; the text holds every reason, a line each."""


def number(value: object) -> object:
    """Turn ``"8/255"`` and ``"1e-3"`` into a float; leave the rest to the type check.

    >>> number("8/255") == 8 / 255
    True
    """
    if not isinstance(value, str):
        return value
    try:
        return float(Fraction(value.replace(" ", ""))) if "/" in value else float(value)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{value!r} is not a number: write 0.03 or 8/255") from None


def option(value: object) -> object:
    """Turn ``"1/100"`` and ``"1e-3"`` into a float; any other text stays text."""
    try:
        return number(value)
    except ValueError:
        return value


Option = Annotated[bool | int | float | str | None, BeforeValidator(option)]
Number = Annotated[float, BeforeValidator(number)]
Factor = Annotated[float, BeforeValidator(number), Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, BeforeValidator(number), Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, BeforeValidator(number), Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class Spec(BaseModel):
    """A frozen part of a recipe; a key it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class Constant(Spec):
    """No schedule: the base value throughout."""

    kind: Literal["constant"] = "constant"

    def build(self) -> schedules.Schedule:
        """Return the function of the epoch."""
        return schedules.constant()


class Piecewise(Spec):
    """The base value times ``factor`` at each epoch of ``at``."""

    kind: Literal["piecewise"] = "piecewise"
    at: tuple[Factor, ...]
    factor: Positive = 0.1

    def build(self) -> schedules.Schedule:
        """Return the function of the epoch."""
        return schedules.piecewise(at=self.at, factor=self.factor)


class Ramp(Spec):
    """From ``start`` to ``stop`` times the base value, linearly between two epochs."""

    kind: Literal["ramp"] = "ramp"
    first: Factor = 0.0
    last: Factor
    start: Factor = 0.0
    stop: Factor = 1.0

    def build(self) -> schedules.Schedule:
        """Return the function of the epoch."""
        return schedules.ramp(
            first=self.first, last=self.last, start=self.start, stop=self.stop
        )


class Cyclic(Spec):
    """Up from 0 to the base value at epoch ``peak``, down to 0 at epoch ``end``."""

    kind: Literal["cyclic"] = "cyclic"
    peak: Positive
    end: Positive

    def build(self) -> schedules.Schedule:
        """Return the function of the epoch."""
        return schedules.cyclic(peak=self.peak, end=self.end)


class Cosine(Spec):
    """Half a cosine down to 0 at epoch ``end``, after a linear ``warmup``."""

    kind: Literal["cosine"] = "cosine"
    end: Positive
    warmup: Factor = 0.0

    def build(self) -> schedules.Schedule:
        """Return the function of the epoch."""
        return schedules.cosine(end=self.end, warmup=self.warmup)


ScheduleSpec = Annotated[
    Constant | Piecewise | Ramp | Cyclic | Cosine, Field(discriminator="kind")
]


class Data(Spec):
    """Which images, and what is done to them before the model sees them."""

    name: str = "digits"
    size: Count | None = None
    """Resize to this many pixels a side."""
    classes: tuple[int, ...] | None = None
    """Keep these classes only (galloway2019 Table 1: 3 and 7)."""
    train: Count | None = None
    """Draw this many training samples, uniformly per class."""
    test: Count | None = None
    validation: Annotated[float, BeforeValidator(number), Field(gt=0, lt=1)] = 0.1
    """The held-out share of the training samples, where the set has no validation split."""
    augment: str = "none"
    mixup: Factor = 0.0
    """Beta parameter of mixup; 0 is none."""
    workers: Annotated[int, Field(ge=0)] = 2
    """Processes that read image folders."""


class Model(Spec):
    """Which network. ``options`` are those of its constructor: ``advnorm list models``."""

    name: str = "mlp"
    options: dict[str, Option] = {}
    standardize: Literal["data", "per_image", "none"] = "data"
    """The first layer: by the training data's moments, by each image's own, or nothing."""


class Norm(Spec):
    """Which normalization. ``options`` are those of ``advnorm list norms``."""

    name: str = "batch"
    options: dict[str, Option] = {}
    where: Literal["all", "input"] | tuple[int, ...] = "all"
    """On every place, on the network's input alone, or on these places (from 0)."""
    freeze_last: Annotated[int, Field(ge=0)] = 0
    """Train the last so many epochs with the running statistics (xie2020, 4.3: 10)."""


class ThreatSpec(Spec):
    """What the adversary may change."""

    norm: Literal["linf", "l2"] = "linf"
    eps: Positive = 0.1
    bounds: tuple[Number, Number] = (0.0, 1.0)
    schedule: ScheduleSpec = Constant()
    """Factor of eps over the epochs of training; at 0 the images stay clean."""

    def build(self) -> Threat:
        """Return the threat at full radius."""
        return THREATS[self.norm](self.eps, self.bounds)


class Attack(Spec):
    """The attack inside training: PGD."""

    steps: Count = 10
    steps_schedule: ScheduleSpec = Constant()
    """Factor of the number of steps over the epochs, at least one step."""
    step_size: Positive | None = None
    """In units of the norm; by default 2.5 eps / steps. Follows the schedule of eps."""
    target: Literal["none", "random", "least_likely"] = "none"
    clean_start: Share = 0.0
    """Start at the clean image with this probability (xie2020: 0.2), else in the ball."""
    statistics: Mode | dict[Number, Mode] = "running"
    """Which statistics the norms use while the attack searches; or by epoch, such as
    ``{0: batch, 30: running}``."""

    def statistics_at(self, epoch: float) -> Mode:
        """Return the statistics in use at a time in epochs."""
        if isinstance(self.statistics, str):
            return self.statistics
        begun = [start for start in self.statistics if start <= epoch]
        return self.statistics[max(begun)] if begun else "running"


class Objective(Spec):
    """What is minimized. A setting left out is the objective's own default."""

    name: str = "pgd"
    gamma: Share | None = None
    """Weight of the clean loss (mixed, alp, mixed_kl)."""
    gamma_schedule: ScheduleSpec = Constant()
    beta: Positive | None = None
    """Weight of the divergence (trades, mixed_kl), or of CROWN's bound (crown_ibp)."""
    beta_schedule: ScheduleSpec = Constant()
    kappa: Share | None = None
    """Weight of the clean loss beside a certified one (ibp, crown_ibp)."""
    kappa_schedule: ScheduleSpec = Constant()
    pairing: Positive | None = None
    """Weight of the distance of paired logits (alp)."""
    clean_share: Share | None = None
    """Share of the clean images that stay in the batch (mixed)."""
    batching: Literal["sequential", "concatenated"] | None = None
    likelihood: Factor | None = None
    """Weight of the dual norms' likelihood loss."""

    def settings(self) -> dict[str, Any]:
        """Return the settings that were given."""
        names = ("gamma", "beta", "kappa", "pairing", "clean_share", "batching")
        given = {name: getattr(self, name) for name in (*names, "likelihood")}
        return {name: value for name, value in given.items() if value is not None}


class Gradient(Spec):
    """How a step's gradient is obtained: ``advnorm list gradients``.

    A setting left out is the rule's own default.
    """

    name: str = "plain"
    eps: Annotated[float, BeforeValidator(number), Field(ge=0, lt=1)] | None = None
    """Relative radius of the perturbed statistics (apart, apart_sam)."""
    rho: Factor | None = None
    """Radius of the perturbed weights (sam, apart_sam)."""
    samples: Count | None = None
    """How many samples of a batch the second pass takes; by default all."""
    groups: Count | None = None
    """How many groups of them are normalized each by itself."""

    def settings(self) -> dict[str, Any]:
        """Return the settings that were given."""
        given = {key: getattr(self, key) for key in ("eps", "rho", "samples", "groups")}
        return {key: value for key, value in given.items() if value is not None}


class Optimizer(Spec):
    """How the weights move."""

    name: Literal["sgd", "adam"] = "sgd"
    rate: Positive = 0.1
    schedule: ScheduleSpec = Constant()
    momentum: Share = 0.9
    nesterov: bool = False
    weight_decay: Factor = 0.0
    decay_norms: bool = True
    """Whether weight decay also reaches biases and the norms' own parameters."""
    scalar_factor: Positive = 1.0
    """Factor of the rate for parameters of a single number (Fixup: 0.1)."""
    only: Literal["all", "norms"] = "all"
    """Train everything, or the norms' own parameters alone (xie2020, 4.4)."""
    clip: Positive | None = None
    """Largest Euclidean norm of the gradient; a longer one is shortened."""
    accumulate: Count = 1
    """Parts of a batch that pass through the model one after the other, to save memory."""


class Validation(Spec):
    """The held-out accuracies that choose the best checkpoint."""

    every: Count = 1
    """Epochs between two validations; the last epoch always has one."""
    samples: Count | None = 1000
    steps: Count = 10
    """PGD steps of the robust accuracy."""
    robust: Literal["pgd", "ibp"] = "pgd"
    """Whether robust is accuracy under PGD, or verified by interval bounds."""
    eps: Positive | None = None
    """Radius of the robust accuracy; by default the threat's own."""
    prefer: Literal["clean+robust", "clean", "robust"] = "clean+robust"
    """Which held-out accuracy the best checkpoint maximizes."""


class Evaluation(Spec):
    """What ``advnorm evaluate`` runs."""

    attacks: tuple[str, ...] = ("clean", "noise-0.25", "fgsm", "bim-10", "pgd-50")
    """``name-stepsxrestarts+option``; ``noise-sigma``; ``clean``: docs/evaluation.md."""
    norm: Literal["linf", "l2"] | None = None
    """By default the recipe's own; another norm needs its own ``eps``."""
    eps: tuple[Factor, ...] = ()
    """Radii of the accuracy curve; by default half the recipe's own and its own."""
    certify: Literal["none", "ibp", "crown-ibp", "crown"] = "none"
    """A certificate that is tried before attacks: what it covers is not attacked."""
    step_ratio: Positive = 2.5
    """Length of all steps together over eps: step size = ratio * eps / steps."""
    data: str | None = None
    """Another set's test samples, such as ``cifar10-c:fog:3``; by default the run's."""
    samples: Count | None = None
    """The first so many test samples; by default all."""
    batch_size: Count = 250
    weights: Literal["best", "last"] = "best"
    branch: Literal["adversarial", "clean", "worst"] = "adversarial"
    """Which branch of a mixture norm answers, and is attacked; ``worst`` is both."""
    examples: Annotated[int, Field(ge=0)] = 8
    """Images kept for the report."""


class Perturbation(Spec):
    """What ``advnorm perturb`` does to the statistics of batch norms (apart2022 4.4, 4.5).

    Samples, weights, branch and batch size are those of ``evaluation``.
    """

    radii: tuple[Annotated[float, BeforeValidator(number), Field(ge=0, lt=1)], ...] = (
        0.0,
        0.1,
        0.2,
        0.3,
        0.4,
    )
    """Relative to each statistic."""
    directions: tuple[Literal["uniform", "sign", "adversarial"], ...] = ("sign",)
    parts: tuple[Literal["mean", "deviation", "both"], ...] = ("mean", "deviation")
    statistics: Literal["running", "batch"] = "running"
    groups: Count = 1
    """Of a batch, normalized each by itself; for batch statistics."""
    split: Literal["test", "train"] = "test"
    attacked: Count = 128
    """Training samples on which an adversarial direction climbs the loss."""


class Recipe(Spec):
    """Everything that decides a training run, and how it is evaluated."""

    name: str = "unnamed"
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    data: Data = Data()
    model: Model = Model()
    norm: Norm = Norm()
    threat: ThreatSpec = ThreatSpec()
    objective: Objective = Objective()
    attack: Attack = Attack()
    gradient: Gradient = Gradient()
    optimizer: Optimizer = Optimizer()
    epochs: Count = 30
    batch_size: Count = 128
    precision: Literal["float32", "bfloat16", "float16", "float64"] = "float32"
    channels_last: bool = False
    compile: bool = False
    start: str | None = None
    """A run folder whose best weights training begins from."""
    checkpoint_seconds: Positive = 60.0
    """Longest time between two checkpoints; there is one after every epoch too."""
    validation: Validation = Validation()
    evaluation: Evaluation = Evaluation()
    perturbation: Perturbation = Perturbation()


def parse(values: Mapping[str, Any]) -> Recipe:
    """Validate plain values; every mistake is reported at once."""
    try:
        return Recipe.model_validate(dict(values))
    except ValidationError as error:
        lines = [_explain(details) for details in error.errors()]
        raise RecipeError("\n".join(lines)) from None


def from_yaml(text: str) -> Recipe:
    """Read a recipe written by :func:`to_yaml` or by hand."""
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RecipeError(f"the recipe is not YAML: {error}") from None
    if not isinstance(values, dict):
        raise RecipeError("a recipe is a YAML mapping, such as 'epochs: 10'")
    return parse(values)


def to_yaml(recipe: Recipe) -> str:
    """Write a recipe in full, so that no default of a later version changes it."""
    text: str = yaml.safe_dump(plain(recipe.model_dump()), sort_keys=False)
    return text


def read(path: Path) -> Recipe:
    """Read a recipe file."""
    try:
        return from_yaml(path.read_text())
    except UnicodeDecodeError:
        raise RecipeError(f"{path} is not a text file: give a recipe in YAML") from None
    except RecipeError as error:
        raise RecipeError(f"{path}:\n{error}") from None


def override(recipe: Recipe, changes: Sequence[str]) -> Recipe:
    """Return ``recipe`` with each ``dotted.name=value`` changed.

    >>> override(Recipe(), ["threat.eps=8/255", "epochs=2"]).epochs
    2
    """
    values = plain(recipe.model_dump())
    for change in changes:
        name, equals, text = change.partition("=")
        if not equals or not name:
            raise RecipeError(f"--set takes key=value, such as epochs=3, not {change!r}")
        _assign(values, name.strip().split("."), _value(change, text))
    return parse(values)


def differences(one: Recipe, other: Recipe) -> list[str]:
    """Name the keys in which two recipes differ, with both values.

    >>> differences(Recipe(epochs=2), Recipe(epochs=3))
    ['epochs: 2 -> 3']
    """
    left, right = _flatten(one.model_dump()), _flatten(other.model_dump())
    keys = [*left, *(key for key in right if key not in left)]
    return [
        f"{key}: {left.get(key)} -> {right.get(key)}"
        for key in keys
        if left.get(key) != right.get(key)
    ]


def plain(value: Any) -> Any:
    """Turn tuples into lists, so that a safe YAML writer takes the value."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def _value(change: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise RecipeError(
            f"--set {change}: the value is not YAML; quote it, and close its brackets"
        ) from None


def _assign(values: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        inner = values.get(part)
        values[part] = inner = dict(inner) if isinstance(inner, dict) else {}
        values = inner
    values[path[-1]] = value


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        nested = isinstance(value, dict)
        flat |= _flatten(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flat


def _explain(details: ErrorDetails) -> str:
    """Say in one line which key is wrong and what to write instead."""
    path = [str(part) for part in details["loc"]]
    key = ".".join(path)
    if details["type"] == "extra_forbidden":
        known = _fields(path[:-1])
        close = get_close_matches(path[-1], known, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}? " if close else ""
        return f"{key}: no such key; {hint}There are: {', '.join(known)}"
    message = details["msg"].removeprefix("Value error, ")
    return f"{key}: {message} (given: {details['input']!r})"


def _fields(path: Sequence[str]) -> list[str]:
    """Return the keys of the part of a recipe that ``path`` leads to."""
    spec: type[BaseModel] = Recipe
    for part in path:
        if part in spec.model_fields:
            spec = _spec_of(spec.model_fields[part].annotation, path)
    return list(spec.model_fields)


def _spec_of(annotation: Any, path: Sequence[str]) -> type[BaseModel]:
    """Return the part of a recipe a field holds; of a schedule, the kind that was named."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    kinds: list[type[Spec]] = [kind for kind in get_args(annotation)]
    named = [kind for kind in kinds if kind.model_fields["kind"].default == path[-1]]
    return (named or kinds)[0]
