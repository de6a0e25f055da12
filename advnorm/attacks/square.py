r"""Square Attack (Andriushchenko et al., 2020, https://arxiv.org/abs/1912.00049).

Random search that sees the logits only. Each query changes one square of the image at a
place drawn for the sample, and is kept if it lowers the margin
:math:`f_y(x) - \max_{k \ne y} f_k(x)`. The side of the square is :math:`\sqrt{p h w}`,
where p starts at 0.8 and is halved as the queries run out.

Linf (Algorithm 2): the square becomes :math:`x \pm \epsilon`, one sign per channel, from
vertical stripes of that kind. L2 (Algorithm 3): the square :math:`W_1` gains the budget of
a second one :math:`W_2`, which is cleared, and what the bounds left unused:

.. math::
    \nu_{W_1} \leftarrow \sqrt{\|\nu_{W_1 \cup W_2}\|^2 + (\epsilon^2 - \|\nu\|^2) / c}
    \;\, \overline{\rho \, \overline\eta + \overline{\nu_{W_1}}}, \quad
    \nu_{W_2} \leftarrow 0

in each of the c channels, with :math:`\nu = x' - x`, a bar for unit length, a random sign
:math:`\rho` and the pattern :math:`\eta` of
:func:`~advnorm.attacks.square_proposals.bumps`.

Few queries are kept, so the next ones of a sample are made in one pass, all from the
present point. The first that lowers the margin is kept. Those after it did not start from
the new point, and are made again. So the result is that of one query after the other, as in
the paper; the number of queries per pass changes only the time (:class:`QueryPace`).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import groupby
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from advnorm.attacks.pgd import NonFiniteGradientError
from advnorm.attacks.square_l1 import L1_SQUARES
from advnorm.attacks.square_proposals import (
    NORMS,
    PLACES,
    Proposals,
    SquareNorm,
    SquareState,
)
from advnorm.attacks.targets import LogitsFn, hard_labels
from advnorm.draws import Draws, draws_of_call
from advnorm.threat import Threat

HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)  # queries, of 10000
_BLOCK = 100  # queries whose random numbers are drawn at once
Propose = Callable[[SquareState, Tensor, Tensor], Proposals]


def square(  # noqa: PLR0913 (what every attack takes, and its schedule)
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int = 5000,
    p_init: float = 0.8,
    horizon: int = 10_000,
    rows: int = 512,
    draws: Draws | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Square Attack: random search on scores (Andriushchenko et al., 2020).

    An image is finished as soon as it is misclassified.

    Args:
        logits_fn: Maps images in the threat's bounds to logits; called without gradients.
        clean: Clean images, shape ``(batch, channels, height, width)``.
        labels: Class indices ``(batch,)``, or soft labels ``(batch, classes)``.
        threat: The set to search, of norm ``"linf"``, ``"l2"`` or ``"l1"``.
        steps: Number of queries after that of the start.
        p_init: Share of the pixels that the first squares cover.
        horizon: Number of queries that the published table of sizes, which is for 10000,
            is stretched to. AutoAttack's standard version makes 5000 queries with the
            table as it is, so this is the default; ``steps`` runs through the whole table.
        rows: Images a pass up to which several queries of a sample are asked at once;
            nothing but time and memory depends on it.
        draws: The samples' random numbers; by default fresh ones at every call.
        generator: Where fresh ones come from; by default torch's global generator, which
            advances as in ``torch.rand``.

    Returns:
        The admissible images of the lowest margin met, same shape as ``clean``.
    """
    _refuse(clean, horizon)
    draws = draws_of_call(draws, generator, clean)
    norm = L1_SQUARES if threat.name == "l1" else NORMS[threat.name]
    pace = QueryPace(rows=rows)
    with torch.no_grad():  # a model may cache tensors: those of inference mode would harm
        clean, labels = clean.detach(), hard_labels(labels)
        x = norm.start(clean, threat, draws.stream("start"))
        margin = margins(logits_fn(x), labels)
        numbers = torch.arange(len(clean), device=clean.device)
        base = norm.base(clean, threat)
        active = ActiveSamples(
            numbers, draws.keys, base, x.contiguous().clone(), labels, margin
        )
        for part in _parts(steps, lambda q: share(q / horizon, p_init)):
            active = active.without_broken(x)
            if not len(active.rows):
                break
            size = norm.size(part.share, *clean.shape[2:])
            propose = _propose(norm, size, threat)
            active.search(
                logits_fn, propose, part.numbers(active.keys, clean.shape[1]), pace
            )
        x[active.rows] = active.x
    return x


def _refuse(clean: Tensor, horizon: int) -> None:
    if clean.ndim != 4:
        raise ValueError(
            "Square Attack changes squares of pixels and needs images of shape (batch, "
            f"channels, height, width), not {tuple(clean.shape)}"
        )
    if horizon < 1:
        raise ValueError(f"horizon is a number of queries from 1, not {horizon}")


def _propose(norm: SquareNorm, size: int, threat: Threat) -> Propose:
    return lambda point, of, numbers: norm.propose(point, of, numbers, size, threat)


def share(progress: float, p_init: float) -> float:
    """Return the share of pixels that a square covers, after this share of the horizon.

    >>> [share(n / 10_000, 0.8) for n in (0, 10, 11, 50, 51, 9999)]
    [0.8, 0.8, 0.4, 0.4, 0.2, 0.0015625]
    """
    return p_init / 2.0 ** bisect_left(HALVINGS, int(progress * 10_000 + 1e-6))


def margins(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the lead of the label over the best other class, shape ``(batch,)``."""
    own = logits.gather(1, labels[:, None])
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return own.squeeze(1) - others.amax(1)


class _Part(NamedTuple):
    """Queries in a row with squares of one size, within one block of random numbers."""

    share: float
    first: int
    length: int

    def numbers(self, keys: Tensor, channels: int) -> Tensor:
        """Return the uniform numbers of its queries, ``(batch, length, numbers)``."""
        start = self.first % _BLOCK
        stream = Draws(keys).stream("squares", self.first - start)
        return stream.uniform(_BLOCK, PLACES + channels)[:, start : start + self.length]


def _parts(steps: int, share_at: Callable[[int], float]) -> Iterator[_Part]:
    for (_, p), group in groupby(range(steps), lambda q: (q // _BLOCK, share_at(q))):
        queries = list(group)
        yield _Part(p, queries[0], len(queries))


class QueryPace:
    r"""How many queries of a sample share a pass; only the time depends on it.

    Let a pass cost as much as :math:`a` images on top of its own, and a query be kept with
    probability q. Asking k of each of m samples costs :math:`a + m k` and settles about
    :math:`m k (1 - q k / 2)` queries, the rest is asked again. The cost of one is least at
    :math:`k = \sqrt{2 a / (m q)}`.
    """

    def __init__(self, overhead: float = 32, rows: int = 512, rarest: float = 0.01) -> None:
        self.overhead, self.rows, self.rarest = overhead, rows, rarest
        self.kept = rarest  # so that no later pass needs more memory than the first

    def width(self, samples: int) -> int:
        """Return how many queries of each sample to make in one pass."""
        best = sqrt(2 * self.overhead / (samples * max(self.kept, self.rarest)))
        return max(1, min(int(best), self.rows // samples))

    def update(self, samples: int, width: int, kept: int) -> None:
        """Update the rate of success: ``kept`` samples kept one of ``width`` queries."""
        self.kept += 0.2 * (1 - (1 - kept / samples) ** (1 / width) - self.kept)


class ActiveSamples(NamedTuple):
    """The samples not broken yet, and what belongs to them."""

    rows: Tensor
    keys: Tensor
    base: Tensor
    x: Tensor
    labels: Tensor
    margin: Tensor

    def without_broken(self, x: Tensor) -> "ActiveSamples":
        """Write the broken samples to their rows of ``x`` and return the others."""
        keep = (~(self.margin < 0)).nonzero().squeeze(1)
        if len(keep) == len(self.rows):
            return self
        x[self.rows] = self.x
        return ActiveSamples(*(part[keep] for part in self))

    def search(
        self, logits_fn: LogitsFn, propose: Propose, numbers: Tensor, pace: QueryPace
    ) -> None:
        """Make the queries of ``numbers``, of each sample until it is broken."""
        count = numbers.shape[1]
        at, todo = torch.zeros_like(self.rows), torch.arange(len(self.rows)).to(self.rows)
        while len(todo):
            width = min(pace.width(len(todo)), count)
            queries = (at[todo, None] + torch.arange(width, device=at.device)).flatten()
            of = todo.repeat_interleave(width)
            proposals = propose(self, of, numbers[of, queries.clamp(max=count - 1)])
            margin = self.ask(logits_fn, of, proposals, queries < count)
            settled, kept = self.keep(todo, proposals, margin.view(-1, width))
            at.index_add_(0, todo, settled)
            pace.update(len(todo), width, kept)
            unsettled = (at[todo] < count) & ~(self.margin[todo] < 0)
            todo = todo[unsettled.nonzero().squeeze(1)]

    def ask(
        self, logits_fn: LogitsFn, of: Tensor, proposals: Proposals, valid: Tensor
    ) -> Tensor:
        """Return the margins of the valid proposals, those of samples ``of``.

        A proposal that changes nothing has the margin of what it repeats: it counts as a
        query, and costs no pass. With one channel that is one in two single pixels. Its
        margin is given as infinite, like that of a proposal that is not valid.
        """
        new = (proposals.changed & valid).nonzero().squeeze(1)
        margin = self.margin.new_full(of.shape, torch.inf)
        if len(new):
            new_margins = margins(logits_fn(proposals.images(new)), self.labels[of[new]])
            if new_margins.isnan().any():  # it is no answer, and would count as no success
                raise NonFiniteGradientError(
                    "the attack met logits that are not numbers: the model overflows, or "
                    "its weights or statistics are not numbers"
                )
            margin.index_copy_(0, new, new_margins)
        return margin

    def keep(
        self, todo: Tensor, proposals: Proposals, margin: Tensor
    ) -> tuple[Tensor, int]:
        """Move each sample to its first proposal that lowers its margin.

        Returns:
            How many queries of each sample are settled, and how many samples moved.
        """
        width = margin.shape[1]
        moved, first = (margin < self.margin[todo, None]).int().max(1)
        hit = moved.nonzero().squeeze(1)
        chosen, rows = hit * width + first[hit], todo[hit]
        images = proposals.images(chosen)
        self.x.index_copy_(0, rows, images)
        self.margin.index_copy_(0, rows, margin.flatten()[chosen])
        return torch.where(moved > 0, first + 1, width), len(hit)
