"""Keyed draws: independent of the batch, and random enough."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from advnorm.draws import Draws, permutation


@given(st.integers(0, 2**62), st.lists(st.integers(0, 10**9), min_size=1, max_size=5))
def test_a_draw_depends_on_seed_and_sample_alone(seed, samples):
    together = Draws.of(seed, torch.tensor(samples)).uniform(2, 3)
    for row, sample in enumerate(samples):
        alone = Draws.of(seed, torch.tensor([sample])).uniform(2, 3)
        assert torch.equal(together[row], alone[0])


def test_the_callers_random_state_is_untouched():
    before = torch.get_rng_state()
    Draws.of(0, torch.arange(3)).normal(4)
    permutation(10, 0)
    assert torch.equal(before, torch.get_rng_state())


def test_uniform_and_normal_pass_a_kolmogorov_smirnov_test():
    draws = Draws.of(0, torch.arange(100))
    assert stats.kstest(draws.uniform(1000).flatten().numpy(), "uniform").pvalue > 1e-3
    assert stats.kstest(draws.normal(1000).flatten().numpy(), "norm").pvalue > 1e-3


def test_neighbouring_seeds_samples_and_streams_are_uncorrelated():
    base = Draws.of(0, torch.arange(2))
    rows = torch.stack(
        [
            *base.uniform(20000),
            Draws.of(1, torch.arange(1)).uniform(20000)[0],
            base.stream("start").uniform(20000)[0],
            base.stream("start", 1).uniform(20000)[0],
            base.stream(1, 0).uniform(20000)[0],
            base.stream(0, 1).uniform(20000)[0],
        ]
    )
    off = torch.corrcoef(rows) - torch.eye(len(rows))
    assert off.abs().max() < 0.035  # five standard deviations of 1 / sqrt(20000)


def test_uniform_stays_off_both_ends_in_every_precision():
    draws = Draws.of(5, torch.arange(1000))
    for dtype in (torch.float32, torch.float64):
        u = draws.uniform(1000, dtype=dtype)
        assert u.min() > 0 and u.max() < 1


def test_integers_are_uniform():
    counts = Draws.of(2, torch.arange(10000)).integers(7).bincount(minlength=7)
    assert len(counts) == 7 and stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_a_permutation_holds_every_number_once_and_changes_with_the_epoch():
    first, second = permutation(1000, 3, "order", 0), permutation(1000, 3, "order", 1)
    assert torch.equal(first.sort().values, torch.arange(1000))
    assert (first == second).float().mean() < 0.02
    assert torch.equal(first, permutation(1000, 3, "order", 0))
