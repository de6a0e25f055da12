"""Square Attack: what it asks, what it keeps, and that it never leaves the ball."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from advnorm.attacks import NonFiniteGradientError
from advnorm.attacks.square import QueryPace, share, square
from advnorm.attacks.square_proposals import bumps, pixels, window
from advnorm.draws import Draws
from advnorm.threat import L2, Linf

WIDE = (-10.0, 10.0)
THREATS = pytest.mark.parametrize("make", [Linf, L2], ids=["linf", "l2"])


def linear(seed, shape=(2, 6, 6), classes=3, batch=20, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    d = shape[0] * shape[1] * shape[2]
    weight = torch.randn(classes, d, generator=generator, dtype=torch.float64).to(dtype)
    clean = torch.rand(batch, *shape, generator=generator, dtype=torch.float64).to(dtype)
    return weight, clean, (clean.flatten(1) @ weight.T).argmax(1)


def lead(logits, labels):
    own = logits.gather(1, labels[:, None]).squeeze(1)
    return own - logits.scatter(1, labels[:, None], -torch.inf).amax(1)


def rows_of(x, clean):
    """Tell which samples were asked about: a query that changes nothing is not asked."""
    return torch.cdist(x.flatten(1), clean.flatten(1)).argmin(1)


def deaf(queries, clean=None):
    """Return a model that notes what it is asked and never changes its mind.

    What is not asked about a sample of ``clean`` is its start, which it then repeats.
    """

    def logits_fn(x):
        question = x.clone()
        if queries and clean is not None:
            question = queries[0].clone()
            question[rows_of(x, clean)] = x
        queries.append(question)
        return torch.tensor([1.0, 0.0]).expand(len(x), 2)

    return logits_fn


def zeros(batch):
    return torch.zeros(batch, dtype=torch.long)


@THREATS
def test_keeps_the_lowest_margin_it_was_shown(make):
    weight, clean, labels = linear(0)
    seen = []

    def logits_fn(x):
        rows = rows_of(x, clean)
        logits = 100 * labels_first[rows] + x.flatten(1) @ weight.T
        seen.append(torch.full((20,), torch.inf).double())
        seen[-1][rows] = lead(logits, labels[rows])
        return logits

    labels_first = nn.functional.one_hot(labels, 3)
    x = square(logits_fn, clean, labels, make(0.3, WIDE), steps=150, rows=1)
    final = lead(100 * labels_first + x.flatten(1) @ weight.T, labels)
    seen = torch.stack(seen)
    torch.testing.assert_close(final, seen.amin(0), rtol=0, atol=1e-9)
    assert len(seen) == 151 and (final < seen[0]).all()


@THREATS
def test_each_proposal_starts_from_the_best_so_far(make):
    """If proposals built on anything else, a long search would not beat a short one."""
    weight, clean, labels = linear(1, batch=10)
    shift = 100 * nn.functional.one_hot(labels, 3)

    def logits_fn(x):
        return shift[rows_of(x, clean)] + x.flatten(1) @ weight.T

    leads = [
        lead(logits_fn(square(logits_fn, clean, labels, make(0.3, WIDE), steps=n)), labels)
        for n in (0, 20, 100, 700)
    ]
    gains = [float((leads[0] - later).mean()) for later in leads[1:]]
    assert gains[0] < gains[1] < gains[2]
    if make is Linf:  # two logits differ by at most eps |w_y - w_k|_1
        gaps = (weight[labels][:, None] - weight).abs().sum(2).amax(1)
        assert (leads[3] < lead(logits_fn(clean), labels) - 0.55 * 0.3 * gaps).all()


@pytest.mark.parametrize(("make", "part"), [(Linf, 0.4), (L2, 0.3)])
def test_breaks_all_whose_margin_is_far_below_what_the_ball_allows(make, part):
    """The same image many times over: only the draws differ."""
    w = linear(2, batch=1)[0][0]
    threat, clean = make(0.1), torch.full((40, 2, 6, 6), 0.5).double()
    worst = threat.eps * w.norm(p=1 if make is Linf else 2)

    def logits_fn(x):
        margin = (x - 0.5).flatten(1) @ w + part * worst
        return torch.stack([margin, torch.zeros_like(margin)], 1)

    x = square(logits_fn, clean, zeros(40), threat, steps=1500)
    assert threat.contains(x, clean).all()
    assert (logits_fn(x).argmax(1) == 1).all()


@THREATS
@given(st.integers(0, 10**6), st.integers(0, 30), st.sampled_from([1, 3]))
@settings(deadline=None, max_examples=15)
def test_every_question_and_answer_is_admissible(make, seed, steps, channels):
    weight, clean, labels = linear(
        seed, (channels, 7, 5), classes=5, batch=6, dtype=torch.float32
    )
    clean = (clean * 1.4 - 0.2).clamp(0, 1)
    threat, queries = make(0.3), []
    draws = Draws.of(seed, torch.arange(6))

    def logits_fn(x):
        rows = rows_of(x, clean)
        queries.append((x.clone(), clean[rows]))
        return x.flatten(1) @ weight.T + 1e3 * nn.functional.one_hot(labels[rows], 5)

    x = square(logits_fn, clean, labels, threat, steps=steps, draws=draws)
    assert x.dtype == torch.float32
    for question, origin in [*queries, (x, clean)]:
        assert threat.contains(question, origin).all()


def test_the_published_schedule():
    queries = [0, 10, 11, 50, 51, 200, 201, 500, 501, 1000, 1001, 2000, 2001, 4000]
    queries += [4001, 6000, 6001, 8000, 8001, 9999]
    halvings = [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9]
    assert [share(q / 10_000, 0.8) for q in queries] == [0.8 / 2**n for n in halvings]
    assert [share(q / 5000, 0.8) for q in (5, 6, 25, 26)] == [0.8, 0.4, 0.4, 0.2]


def test_linf_squares_have_the_size_of_the_schedule_and_go_everywhere():
    """From stripes, a square flips whole columns of itself, all its rows."""
    queries, clean = [], torch.rand(60, 1, 10, 12).double() / 2 + 0.25
    square(
        deaf(queries, clean), clean, zeros(60), Linf(0.1), steps=200, horizon=200, rows=1
    )
    start, tops = queries[0], set()
    up = start > clean
    assert torch.equal(up, up[:, :, :1].expand_as(up))  # stripes are vertical
    assert torch.allclose((start - clean).abs(), torch.tensor(0.1).double())
    assert 0.4 < (start > clean).double().mean() < 0.6
    for step, question in enumerate(queries[1:]):
        size = min(max(round((share(step / 200, 0.8) * 120) ** 0.5), 1), 10)
        changed = (question != start).squeeze(1)
        heights, widths = changed.any(2).sum(1), changed.any(1).sum(1)
        assert set(heights.tolist()) <= {0, size} and size in heights
        assert widths.max() <= size
        tops |= {(size, int(row.nonzero()[0])) for row in changed.any(2) if row.any()}
    for size in {size for size, _ in tops}:
        assert {top for s, top in tops if s == size} == set(range(10 - size + 1))


def test_linf_squares_are_one_sign_a_channel_at_the_edge_of_the_ball():
    queries, clean = [], torch.rand(50, 3, 6, 6).double() * 0.5 + 0.25
    square(deaf(queries, clean), clean, zeros(50), Linf(0.1), steps=40, rows=1)
    for question in queries[1:]:
        sign = ((question - clean) / 0.1).round()
        changed = (question - queries[0]).abs() > 1e-9
        up, down = (sign > 0) & changed, (sign < 0) & changed
        both = up.flatten(2).any(2) & down.flatten(2).any(2)
        assert not both.any()
        mixed = up.flatten(1).any(1) & down.flatten(1).any(1)  # channels differ
        assert mixed.any()
        torch.testing.assert_close(question, clean + 0.1 * sign, rtol=0, atol=1e-12)


def test_samples_have_their_own_squares():
    queries, clean = [], torch.rand(30, 1, 9, 9) / 2 + 0.25
    square(deaf(queries, clean), clean, zeros(30), Linf(0.1), steps=30, rows=1)
    changed = (queries[-1] != queries[0]).flatten(1)
    assert len({tuple(row.tolist()) for row in changed}) > 10


def test_the_pattern_of_l2_by_hand():
    """A 1 x 3 bump over the negative of a 2 x 3 one: 1 + 1/4 in the centre, 1/4 around."""
    expected = torch.tensor([[1, 5, 1], [-1, -1, -1], [-1, -5, -1]]).double()
    pattern = bumps(3, torch.float64, torch.device("cpu"))
    torch.testing.assert_close(pattern, expected / expected.norm())
    five = bumps(5, torch.float64, torch.device("cpu"))
    assert (five[:2] > 0).all() and (five[2:] < 0).all()
    ratio = (1 + 1 / 4 + 1 / 9) / (1 / 9)  # the centre to the corner
    assert float(five[1, 2] / five[0, 0]) == pytest.approx(ratio, abs=1e-9)


def l2_proposal(start, clean, eps, numbers, size):
    """Write Algorithm 3 with loops, for one sample."""
    c, h, w = start.shape
    rows = [int(numbers[k] * (h - size + 1)) for k in (0, 2)]
    columns = [int(numbers[k] * (w - size + 1)) for k in (1, 3)]
    first, second = (
        (slice(r, r + size), slice(s, s + size)) for r, s in zip(rows, columns, strict=True)
    )
    nu = start - clean
    new = nu.clone()
    mask = torch.zeros(h, w, dtype=torch.bool)
    mask[first] = mask[second] = True
    eta = bumps(size, nu.dtype, nu.device)
    eta = eta if numbers[4] < 0.5 else eta.T
    for i in range(c):
        old = nu[i][first]
        temp = (1 if numbers[5 + i] > 0.5 else -1) * eta + old / (old.norm() + 1e-30)
        budget = (nu[i][mask].norm() ** 2 + (eps**2 - nu.norm() ** 2) / c).sqrt()
        new[i][second] = 0
        new[i][first] = temp / temp.norm() * budget
    return (clean + new).clamp(0, 1)


def test_l2_proposals_follow_algorithm_3():
    queries, clean = [], torch.rand(12, 2, 9, 9, dtype=torch.float64)
    draws = Draws.of(3, torch.arange(12))
    threat = L2(0.8)
    square(
        deaf(queries), clean, zeros(12), threat, steps=20, horizon=20, rows=1, draws=draws
    )
    numbers = draws.stream("squares", 0).uniform(100, 7)
    for step in (0, 1, 5, 15, 19):
        side = max(round((share(step / 20, 0.8) * 81) ** 0.5), 3)
        size = min(side if side % 2 else side + 1, 9)
        for i in range(12):
            expected = l2_proposal(queries[0][i], clean[i], 0.8, numbers[i, step], size)
            torch.testing.assert_close(queries[step + 1][i], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("shape", [(1, 2, 3), (1, 9, 9), (3, 28, 28), (2, 7, 12)])
def test_l2_uses_the_whole_radius_where_no_bound_is_near(shape):
    queries, clean = [], torch.zeros(4, *shape).double()
    square(deaf(queries), clean, zeros(4), L2(0.7, WIDE), steps=10)
    for question in queries:
        norms = question.flatten(1).norm(dim=1)
        torch.testing.assert_close(norms, torch.full_like(norms, 0.7))


def test_l2_starts_with_a_centred_grid_of_patterns():
    queries, clean = [], torch.zeros(30, 2, 28, 28).double()
    square(deaf(queries), clean, zeros(30), L2(1.0, WIDE), steps=0)
    start = queries[0]
    inner = start[:, :, 1:26, 1:26]
    torch.testing.assert_close(inner.square().sum(), start.square().sum())
    tiles = inner.unfold(2, 5, 5).unfold(3, 5, 5).reshape(-1, 5, 5) * 50**0.5
    eta = bumps(5, torch.float64, torch.device("cpu"))
    kinds = torch.stack([eta, -eta, eta.T, -eta.T])
    nearest = torch.cdist(tiles.flatten(1), kinds.flatten(1)).min(1)
    assert nearest.values.max() < 1e-6  # torch.cdist rounds
    assert (nearest.indices.bincount(minlength=4) > 250).all()  # of 1500, 375 each


def test_a_broken_sample_costs_no_further_query():
    weight, clean, labels = linear(5, batch=30)
    broken, calls = set(), []

    def logits_fn(x):
        rows, logits = rows_of(x, clean), x.flatten(1) @ weight.T
        assert len(rows) and not broken & set(rows.tolist())
        broken.update(rows[logits.argmax(1) != labels[rows]].tolist())
        calls.append(len(x))
        return logits

    x = square(logits_fn, clean, labels, Linf(0.03), steps=200, rows=1)
    wrong = ((x.flatten(1) @ weight.T).argmax(1) != labels).nonzero().squeeze(1)
    assert broken == set(wrong.tolist()) and 5 < len(broken) < 30
    broken.clear()
    calls.clear()
    square(logits_fn, clean, labels, Linf(0.2), steps=5000, rows=1)
    assert len(broken) == 30 and len(calls) < 1000


def test_a_query_that_changes_nothing_costs_no_pass_and_changes_no_result():
    """Half of the single pixels of one channel are at the proposed edge already."""
    weight, clean, labels = linear(8, (1, 6, 6), batch=12)
    queries, last = [], {}

    def logits_fn(x):
        rows = rows_of(x, clean)
        for row, image in zip(rows.tolist(), x, strict=True):
            queries.append(row)
            assert row not in last or not torch.equal(image, last[row])
        logits = 100 * nn.functional.one_hot(labels[rows], 3) + x.flatten(1) @ weight.T
        margin = lead(logits, labels[rows])
        for row, image, value in zip(rows.tolist(), x, margin.tolist(), strict=True):
            if value < best.get(row, torch.inf):
                best[row], last[row] = value, image.clone()
        return logits

    best = {}
    x = square(logits_fn, clean, labels, Linf(0.1), steps=400, horizon=400, rows=1)
    assert 0.3 < len(queries) / (12 * 401) < 0.8
    for row, image in enumerate(x):
        assert torch.equal(image, last[row])


def steady(weight):
    """Return a linear model whose logits of an image do not depend on its batch."""
    return lambda x: (x.flatten(1)[:, None] * weight).sum(2)


def straight(model, clean, label, threat, *, steps, horizon, draws):
    """Write the search of one sample with one query at a time, from the papers' text."""
    x = square(model, clean[None], label[None], threat, steps=0, draws=draws)[0]
    best, pixels = lead(model(x[None]), label[None]), clean[0].numel()
    for query in range(steps):
        if best < 0:
            break
        stream = draws.stream("squares", query - query % 100)
        numbers = stream.uniform(100, 5 + len(clean))[0, query % 100]
        side = round((share(query / horizon, 0.8) * pixels) ** 0.5)
        if threat.name == "l2":
            size = min(max(side + 1 - side % 2, 3), *clean.shape[1:])
            new = l2_proposal(x, clean, threat.eps, numbers, size)
        else:
            new = linf_proposal(x, clean, threat, numbers, max(min(side, 7), 1))
        margin = lead(model(new[None]), label[None])
        if margin < best:
            x, best = new, margin
    return x


def linf_proposal(x, clean, threat, numbers, size):
    """Write Algorithm 2 with loops, for one sample."""
    new = x.clone()
    top, left = (
        int(u * (n - size + 1)) for u, n in zip(numbers, x.shape[1:], strict=False)
    )
    for i in range(len(x)):
        edge = clean[i] + (threat.eps if numbers[5 + i] > 0.5 else -threat.eps)
        for row in range(top, top + size):
            new[i, row, left : left + size] = edge[row, left : left + size].clamp(0, 1)
    return new


@pytest.mark.parametrize("threat", [Linf(0.1), L2(1.2)], ids=["linf", "l2"])
def test_batched_queries_give_what_one_at_a_time_gives(threat):
    """Some samples break on the way, some never do."""
    weight, clean, labels = linear(9, (2, 7, 8), batch=8)
    model, draws = steady(weight), Draws.of(5, torch.arange(8))
    settings = {"steps": 230, "horizon": 300}
    expected = torch.stack(
        [
            straight(model, clean[i], labels[i], threat, draws=draws[[i]], **settings)
            for i in range(8)
        ]
    )
    assert 1 < (model(expected).argmax(1) != labels).sum() < 8
    slack, batches = 0 if threat.name == "linf" else 1e-10, []
    for rows in (1, 7, 40, 512):
        x = square(model, clean, labels, threat, rows=rows, draws=draws, **settings)
        torch.testing.assert_close(x, expected, rtol=0, atol=slack)
        batches.append(x)
    assert all(torch.equal(x, batches[0]) for x in batches)


@given(st.integers(0, 10**6), st.integers(1, 600), st.integers(1, 9), st.booleans())
@settings(deadline=None, max_examples=8)
def test_nothing_depends_on_the_rows_of_a_pass(seed, rows, batch, round_ball):
    weight, clean, labels = linear(seed, (1, 5, 6), batch=batch)
    threat = L2(0.2) if round_ball else Linf(0.03)
    draws = Draws.of(seed, torch.arange(batch))
    results = [
        square(steady(weight), clean, labels, threat, steps=70, rows=each, draws=draws)
        for each in (1, rows)
    ]
    assert torch.equal(*results)


def test_queries_that_are_not_kept_share_passes_up_to_the_rows():
    queries, clean = [], torch.rand(10, 1, 8, 8).double()
    settings = {"steps": 300, "draws": Draws.of(0, torch.arange(10))}
    square(deaf(queries), clean, zeros(10), Linf(0.1), rows=60, **settings)
    sizes = [len(x) for x in queries]
    assert len(sizes) < 80 and 45 < max(sizes) <= 60
    every = []
    square(deaf(every), clean, zeros(10), Linf(0.1), rows=1, **settings)
    assert len(every) > 290  # the same queries: none is asked twice where none is kept
    assert torch.equal(
        *(torch.cat(x).flatten(1).sum(1).sort()[0] for x in (queries, every))
    )


@given(st.integers(1, 2000), st.floats(0, 1), st.integers(0, 20))
@settings(deadline=None)
def test_the_pace_asks_more_where_less_is_kept_and_stays_in_the_rows(samples, part, times):
    pace = QueryPace(rows=512)
    first = pace.width(samples)
    assert first >= 1 and samples * first <= max(512, samples)
    for _ in range(times):
        before = pace.kept
        pace.update(samples, 4, int(part * samples))
        assert 0 <= pace.kept <= 1
        target = 1 - (1 - int(part * samples) / samples) ** 0.25
        assert (pace.kept >= before) == (target >= before)
    assert pace.width(samples) <= first


def test_the_pace_is_the_cheapest_width():
    """By brute force: passes and rows for a query, where 1 in 20 is kept."""
    pace = QueryPace(overhead=32, rows=10**6)
    pace.kept = q = 0.05
    for samples in (1, 5, 60):
        cost = {k: (32 + samples * k) / ((1 - (1 - q) ** k) / q) for k in range(1, 200)}
        assert cost[pace.width(samples)] < 1.1 * min(cost.values())


@THREATS
def test_a_horizon_of_the_steps_runs_through_the_whole_table(make):
    queries, clean = [], torch.zeros(1, 1, 16, 16).double()
    for horizon in (10_000, 50):
        square(
            deaf(queries),
            clean,
            zeros(1),
            make(0.2, WIDE),
            steps=50,
            horizon=horizon,
            rows=1,
        )
        change = (queries[-1] != queries[0]).flatten(1)
        queries.clear()
        assert change.any() and (horizon == 50) == bool((change.sum(1) <= 30).all())
    with pytest.raises(ValueError, match="horizon is a number of queries from 1, not 0"):
        square(deaf(queries), clean, zeros(1), make(0.2), horizon=0)


@THREATS
def test_a_samples_result_does_not_depend_on_its_batch(make):
    weight, clean, labels = linear(6, batch=12)
    draws, order = Draws.of(4, torch.arange(12) + 100), torch.tensor([4, 2, 7])
    model = lambda x: x.flatten(1) @ weight.T  # noqa: E731
    threat = make(0.03 if make is Linf else 0.2)
    together = square(model, clean, labels, threat, steps=250, draws=draws)
    some = square(model, clean[order], labels[order], threat, steps=250, draws=draws[order])
    torch.testing.assert_close(some, together[order], rtol=0, atol=1e-12)
    other = square(model, clean, labels, threat, steps=250, draws=draws.stream(1))
    assert not torch.equal(other, together)


def test_vectors_are_refused():
    with pytest.raises(ValueError, match=r"images of shape .* not \(2, 8\)"):
        square(nn.Linear(8, 3), torch.rand(2, 8), zeros(2), Linf(0.1))


def test_windows_are_squares_inside_the_image():
    places = torch.tensor([[0.0, 0.0], [0.999999, 0.999999]])
    image = torch.zeros(2, 1, 4, 5)
    image[window(places, 3, image.shape)] = 1
    assert image[0, 0, :3, :3].all() and image[1, 0, 1:, 2:].all() and image.sum() == 18
    numbers = pixels(places, 3, image.shape[1:])
    assert torch.equal(image.flatten(1), torch.zeros(2, 20).scatter_(1, numbers, 1.0))


@THREATS
def test_soft_labels_two_classes_and_no_samples_are_fine(make):
    weight, clean, labels = linear(8, classes=2, batch=5)
    model = lambda x: x.flatten(1) @ weight.T  # noqa: E731
    soft = nn.functional.one_hot(labels, 2).double()
    settings = {"steps": 5, "draws": Draws.of(0, torch.arange(5))}
    hard = square(model, clean, labels, make(0.1), **settings)
    assert torch.equal(hard, square(model, clean, soft, make(0.1), **settings))
    none = square(model, clean[:0], labels[:0], make(0.1), steps=5)
    assert none.shape == (0, 2, 6, 6)


@THREATS
def test_an_attack_leaves_everything_as_it_was_and_asks_without_gradients(make):
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
    ).eval()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    clean = torch.rand(5, 2, 6, 6)
    labels, before, graphs = model(clean).argmax(1), clean.clone(), []
    buffers = {key: value.clone() for key, value in model.state_dict().items()}
    rng = torch.get_rng_state()

    def logits_fn(x):
        logits = model(x)
        graphs.append(logits.requires_grad)
        return logits

    draws = Draws.of(0, torch.arange(5))
    x = square(logits_fn, clean.requires_grad_(), labels, make(0.1), steps=20, draws=draws)
    assert torch.equal(rng, torch.get_rng_state()) and not any(graphs)
    assert torch.equal(clean, before) and clean.grad is None and not x.requires_grad
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
    assert all(p.requires_grad for p in model.parameters())
    for key, value in model.state_dict().items():
        assert torch.equal(value, buffers[key]), key


def test_answers_that_are_no_numbers_are_no_robustness():
    weight, clean, labels = linear(0)

    def poisoned(x):
        logits = x.flatten(1) @ weight.T
        near = lead(logits, labels[:1].expand(len(x))) < 0.5
        return torch.where(near[:, None], torch.nan, logits)

    chosen = lead(clean.flatten(1) @ weight.T, labels[:1].expand(len(clean))) > 0.5
    with pytest.raises(NonFiniteGradientError, match="not numbers"):
        square(
            poisoned,
            clean[chosen],
            labels[:1].expand(int(chosen.sum())),
            Linf(0.5, WIDE),
            steps=300,
        )
