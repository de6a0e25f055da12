"""The difference of logits ratio against numbers by hand, and what leaves it unchanged."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from advnorm.attacks.losses import dlr, dlr_reason, targeted_dlr, targeted_dlr_reason

LOGITS = torch.tensor([[7.0, 1.0, 5.0, 3.0, 0.0]] * 4, dtype=torch.float64)


def test_the_ratio_by_hand():
    """Sorted: 7 5 3 1 0, so the gap is 7 - 3 = 4."""
    labels = torch.tensor([0, 1, 2, 4])
    expected = torch.tensor([(5 - 7) / 4, (7 - 1) / 4, (7 - 5) / 4, 7 / 4]).double()
    torch.testing.assert_close(dlr(labels)(LOGITS), expected)


def test_the_targeted_ratio_by_hand():
    """Sorted: 7 5 3 1 0, so the gap is 7 - (3 + 1) / 2 = 5."""
    labels, targets = torch.tensor([0, 0, 2, 4]), torch.tensor([2, 4, 0, 1])
    expected = torch.tensor([(5 - 7) / 5, -7 / 5, (7 - 5) / 5, 1 / 5]).double()
    torch.testing.assert_close(targeted_dlr(labels, targets)(LOGITS), expected)


@given(st.integers(0, 10**6), st.integers(4, 12))
@settings(deadline=None, max_examples=30)
def test_neither_scale_nor_shift_of_the_logits_changes_a_ratio(seed, classes):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(8, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (8,), generator=generator)
    targets = (labels + 1) % classes
    for gain in (dlr(labels), targeted_dlr(labels, targets)):
        torch.testing.assert_close(gain(1000 * logits + 7), gain(logits))


def test_the_ratio_is_positive_exactly_where_the_prediction_is_wrong():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(500, 3, generator=generator)
    labels = torch.randint(3, (500,), generator=generator)
    assert torch.equal(dlr(labels)(logits) > 0, logits.argmax(1) != labels)


@pytest.mark.parametrize("row", [[2.0, 2.0, 2.0, 2.0], [2.0, 2.0, 1.0, 1.0], [0.0] * 4])
def test_ties_give_zero_and_a_slope_towards_the_wrong_class(row):
    logits = torch.tensor([row], requires_grad=True)
    labels, targets = torch.tensor([0]), torch.tensor([1])
    for gain in (dlr(labels), targeted_dlr(labels, targets)):
        value = gain(logits)
        (slope,) = torch.autograd.grad(value.sum(), logits)
        assert value == 0 and slope.isfinite().all()
        assert slope[0, 0] < 0 and slope[0, 1:].max() > 0


def test_a_tie_of_all_is_not_a_tie_with_the_label():
    """The label trails three equal logits: the gap is 0, the margin is not."""
    logits = torch.tensor([[4.0, 4.0, 4.0, 1.0]])
    assert dlr(torch.tensor([3]))(logits) == 3.0


def test_few_classes_fall_back_to_the_margin_and_say_so():
    two, three = torch.tensor([[5.0, 3.0]]), torch.tensor([[5.0, 3.0, 4.0]])
    zero, one = torch.tensor([0]), torch.tensor([1])
    assert dlr(zero)(two) == -2 and targeted_dlr(zero, one)(two) == -2
    assert targeted_dlr(zero, one)(three) == -2
    assert dlr(zero)(three) == -0.5
    assert dlr_reason(3) is None and targeted_dlr_reason(4) is None
    assert "needs 3 classes, there are 2" in dlr_reason(2)
    assert "needs 4 classes, there are 3" in targeted_dlr_reason(3)


def test_one_logit_is_refused():
    with pytest.raises(ValueError, match="one logit only"):
        dlr(torch.tensor([0]))(torch.zeros(1, 1))
