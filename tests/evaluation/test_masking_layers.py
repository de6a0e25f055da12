"""The layers of ``benchmarks/masking.py``: each is flagged, and the kept table is theirs."""

import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from advnorm import audit
from advnorm.threat import Linf

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import masking  # noqa: E402
from masking_layers import MASKS, Base, MeanSparse  # noqa: E402

RESULTS = ROOT / "docs" / "results"
RECORDS = sorted((RESULTS / "masking").glob("*.json"))


@pytest.fixture(scope="module")
def base():
    """Return a small untrained CNN, whose own predictions are the labels."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(288, 10),
    )
    blocks = torch.rand(140, 1, 4, 4)
    images = nn.functional.interpolate(blocks, size=16, mode="bilinear")
    return Base(net.eval(), images[:100], 10), images[100:]


@pytest.mark.parametrize("name", list(MASKS))
def test_masks_are_flagged_and_sound_models_are_not(base, name):
    network, images = base
    torch.manual_seed(0)
    model = MASKS[name].plant(network).eval()
    with torch.no_grad():
        labels = model(images).argmax(1)
    result = audit(model, images, labels, Linf(0.1), checks=masking.CHECKED)
    assert bool(result.flagged) != MASKS[name].sound
    assert bool(result.proposal) != MASKS[name].sound


def test_mean_sparse_is_its_equation():
    x = torch.tensor([[0.0, 1.0], [0.9, 1.5], [2.0, -1.0]])
    layer = MeanSparse(torch.tensor([0.0, 1.0]), torch.tensor([2.0, 1.0]), alpha=0.5)
    expected = torch.tensor([[0.0, 1.0], [0.0, 1.0], [2.0, -1.0]])
    assert torch.equal(layer(x), expected)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_page_has_the_table_of_each_record(path):
    page = (RESULTS / "masking.md").read_text()
    assert masking.table(json.loads(path.read_text())) in page


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_masks_are_broken_down_to_their_base_and_sound_models_lose_nothing(path):
    rows = json.loads(path.read_text())["rows"]
    base = rows["(none)"]["standard"]
    for title, row in rows.items():
        if row["sound"]:
            assert row["adaptive"] == base
            assert not row["flags"]
        else:
            assert row["flags"], title
            allowed = 0.03 if title not in ABOVE else 0.06
            assert row["adaptive"] <= base + allowed, title


ABOVE = {"stochastic activation pruning, 200%"}
"""What the page says of them: the adaptive accuracy is over 3 points above the base."""
