"""Radii in place of points: for each sample the largest certified and smallest broken one.

Minimum-norm attacks look for the nearest adversarial image, and the other attacks of the
suite run in balls of several radii, on the samples that are not broken inside them; their
images are pulled back along the line to the clean one. Certificates are tried on a grid of
radii by bisection. A broken radius is the distance of an image that a fresh forward pass
confirms. All radii that are tried are functions of the threat alone, so a bracket does not
depend on the other samples.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from advnorm.attacks import AttackName
from advnorm.attacks.minimum_norm import column
from advnorm.bounds import is_certified
from advnorm.evaluation.certificates import CertificateError, certified_samples
from advnorm.evaluation.stages import (
    NOT_BROKEN,
    BatchVerdicts,
    BoundAttack,
    StageInput,
    predict,
)
from advnorm.records import Bracket, Result, Verdicts
from advnorm.threat import Threat

ResultAndVerdicts = tuple[Result, Verdicts]
CURVE = (0.25, 0.5, 1.0, 2.0)
"""Radii of the attacks that search a given ball, in units of eps."""
GRID, GRID_RADII = 0.125, 15
"""Certificates are tried at 1 to 15 eighths of eps: four steps of bisection."""
_HALVINGS = 10


@dataclass(frozen=True)
class RadiusAttack:
    """An attack of the suite, by its name, and bound to each ball of the curve."""

    name: AttackName
    balls: tuple[tuple[Threat, BoundAttack], ...]
    """Empty for a minimum-norm attack."""


@dataclass(frozen=True)
class RadiusSearch:
    """Bracket the robust radius of each sample that is classified correctly."""

    attacks: Sequence[RadiusAttack]
    threat: Threat
    certificate: str | None
    """The method of certificates; ``None`` for a norm that has none."""
    required: bool = False
    """Whether a model that the certificate does not support is refused."""

    def run(self, batch: StageInput, verdicts: BatchVerdicts) -> BatchVerdicts:
        """Return brackets, and verdicts at the threat's radius."""
        right = verdicts.robust.clone()
        best = torch.where(right, torch.inf, 0.0).to(batch.clean)
        verdicts = verdicts._replace(images=batch.clean.clone())
        by = torch.full_like(verdicts.broken_by, NOT_BROKEN)
        rows = right.nonzero().squeeze(1)
        for number, attack in enumerate(self.attacks):
            for x, of in self._search(attack, batch, rows, best):
                self._keep(batch, verdicts, best, by, x, of, number)
        certified = self._certify_if_supported(batch, rows)
        self._check(batch, certified, best)
        near = right & (best <= self.threat.eps)
        verdicts.broken_by[near] = by[near]
        return verdicts._replace(
            robust=right & ~near, radii=torch.stack([certified, best], 1)
        )

    def _search(
        self, attack: RadiusAttack, batch: StageInput, rows: Tensor, best: Tensor
    ) -> list[tuple[Tensor, Tensor]]:
        """Return candidate images and the rows that they belong to."""
        if not len(rows):
            return []
        entry, logits_fn = attack.name.entry, batch.logits_fn
        if entry.nearest is not None:
            images, distances = entry.nearest(
                logits_fn,
                batch.clean[rows],
                batch.labels[rows],
                self.threat,
                steps=attack.name.steps,
            )
            reached = distances.isfinite().nonzero().squeeze(1)
            return [(images[reached], rows[reached])]
        candidates = []
        for ball, bound in attack.balls:
            left = rows[best[rows] > ball.eps]
            if not len(left):
                continue
            clean, labels = batch.clean[left], batch.labels[left]
            draws = batch.draws[left].stream(bound.random_stream, ball.eps.hex())
            x = bound.attack(batch.exact_fn, clean, labels, draws=draws)
            broken = (predict(logits_fn, x, labels) != labels).nonzero().squeeze(1)
            if len(broken):
                of = left[broken]
                candidates += [(x[broken], of), (self._pull(batch, x[broken], of), of)]
        return candidates

    def _pull(self, batch: StageInput, x: Tensor, rows: Tensor) -> Tensor:
        """Return the misclassified images nearest to the clean ones on the line to them."""
        clean, labels = batch.clean[rows], batch.labels[rows]
        short = torch.zeros(len(x), dtype=x.dtype, device=x.device)
        long, change = torch.ones_like(short), x - clean
        for _ in range(_HALVINGS):
            share = (short + long) / 2
            between = (clean + column(share, x) * change).clamp_(*self.threat.bounds)
            wrong = predict(batch.logits_fn, between, labels) != labels
            short, long = torch.where(wrong, short, share), torch.where(wrong, share, long)
        return (clean + column(long, x) * change).clamp_(*self.threat.bounds)

    def _keep(
        self,
        batch: StageInput,
        verdicts: BatchVerdicts,
        best: Tensor,
        by: Tensor,
        x: Tensor,
        rows: Tensor,
        number: int,
    ) -> None:
        """Keep the images that a fresh pass confirms, where they are the nearest so far."""
        if not len(rows):
            return
        clean, labels = batch.clean[rows], batch.labels[rows]
        predictions = predict(batch.logits_fn, x, labels)
        distance = self.threat.distance(x, clean).to(best.dtype)
        whole = self.threat.with_eps(self.threat.diameter(clean.shape[1:]))
        counts = (predictions != labels) & whole.contains(x, clean)
        nearer = (counts & (distance < best[rows])).nonzero().squeeze(1)
        of = rows[nearer]
        best[of], by[of] = distance[nearer], number
        verdicts.images[of] = x[nearer]
        inside = distance[nearer] <= self.threat.eps
        verdicts.predictions[of[inside]] = predictions[nearer][inside]

    def _certify_if_supported(self, batch: StageInput, rows: Tensor) -> Tensor:
        """Return certified radii, 0 for a model that no rule covers, unless required."""
        try:
            return self._certify(batch, rows)
        except (NotImplementedError, ValueError):
            if self.required:
                raise
            return torch.zeros(len(batch.clean)).to(batch.clean)

    def _certify(self, batch: StageInput, rows: Tensor) -> Tensor:
        """Return the largest radius of the grid that is certified; 0 without any.

        Certified at one radius is certified at all smaller ones.
        """
        largest = torch.zeros(len(batch.clean)).to(batch.clean)
        if self.certificate is None or not len(rows) or self.threat.eps <= 0:
            return largest
        dtype = next((p.dtype for p in batch.model.parameters()), batch.clean.dtype)
        most = self.threat.diameter(batch.clean.shape[1:])
        below = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
        above = torch.full_like(below, GRID_RADII + 1)
        for _ in range(GRID_RADII.bit_length()):
            middle = (below + above) // 2
            proved = torch.zeros_like(middle, dtype=torch.bool)
            for step in sorted(set(middle.tolist())):
                eps, of = min(step * GRID * self.threat.eps, most), middle == step
                images, labels = batch.clean[rows[of]].to(dtype), batch.labels[rows[of]]
                proved[of] = is_certified(
                    batch.model,
                    images,
                    labels,
                    self.threat.with_eps(eps),
                    method=self.certificate,
                )
                sure = rows[of][proved[of]]
                largest[sure] = largest[sure].clamp(min=eps)
            below = torch.where(proved, middle, below)
            above = torch.where(proved, above, middle)
        return largest

    def _check(self, batch: StageInput, certified: Tensor, broken: Tensor) -> None:
        """Raise where a bracket crosses: a certificate or a broken radius is wrong."""
        crossed = (certified > broken * (1 + 1e-6) + 1e-9).nonzero().squeeze(1)
        if len(crossed):
            row = int(crossed[0])
            sample = row if batch.samples is None else int(batch.samples[row])
            raise CertificateError(
                f"sample {sample} (and {len(crossed) - 1} more) is certified up to a "
                f"radius of {float(certified[row]):.6g} and broken at "
                f"{float(broken[row]):.6g}: one of them is wrong, please report it"
            )


def with_certificate(search: RadiusSearch, method: str) -> RadiusSearch:
    """Return the search with another method of certificates, where the norm has any."""
    if search.certificate is None:
        return search
    return replace(search, certificate=method, required=True)


def tighten(
    verdicts: Verdicts, result: Result, others: Iterable[ResultAndVerdicts]
) -> Verdicts:
    """Count what other conditions broke and certified in balls of the same norm.

    An attack that broke a sample inside a ball proves that its radius is not larger, and a
    certificate that it is not smaller.
    """
    radii = list(verdicts.radii)
    place = {sample: row for row, sample in enumerate(verdicts.samples)}
    for other, its in others:
        if other.key == result.key or not _is_same_problem(other, result):
            continue
        assert other.threat
        eps, sure = other.threat.eps, certified_samples(other, its)
        for sample, by in zip(its.samples, its.by, strict=True):
            if sample in place and (by or sample in sure):
                certified, broken = radii[place[sample]]
                if by:
                    broken = eps if broken is None else min(broken, eps)
                if sample in sure:
                    certified = max(certified, eps)
                radii[place[sample]] = certified, broken
                _refuse_crossing(sample, other, (certified, broken))
    return verdicts.model_copy(update={"radii": tuple(radii)})


def _is_same_problem(a: Result, b: Result) -> bool:
    same = ("weights", "data", "split", "branch", "statistics")
    return (
        a.threat is not None
        and b.threat is not None
        and (a.threat.norm, a.threat.bounds) == (b.threat.norm, b.threat.bounds)
        and all(getattr(a, name) == getattr(b, name) for name in same)
    )


def _refuse_crossing(sample: int, other: Result, bracket: Bracket) -> None:
    certified, broken = bracket
    if broken is not None and certified > broken * (1 + 1e-6) + 1e-9:
        raise CertificateError(
            f"with {other.key}, sample {sample} is certified up to a radius of "
            f"{certified:.6g} and broken at {broken:.6g}: one of them is wrong, please "
            "report it"
        )
