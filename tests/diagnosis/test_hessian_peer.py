"""The largest eigenvalue beside a second library, where that is installed (PyHessian)."""

import pytest
import torch
from torch import nn

from advnorm.diagnosis import hessian
from advnorm.models import build
from advnorm.norms import NORMS


@pytest.mark.filterwarnings("ignore:Using backward")  # the other library's way
@pytest.mark.parametrize("norm", ["none", "batch"])
def test_the_eigenvalue_is_that_of_a_second_library(norm):
    peer = pytest.importorskip("pyhessian")
    torch.manual_seed(0)
    model = build(
        "cnn_small", shape=(1, 16, 16), classes=4, norm=NORMS[norm](), options={"width": 4}
    ).eval()
    images, labels = torch.rand(40, 1, 16, 16), torch.randint(4, (40,))
    answer = hessian(model, images, labels, statistics="running", steps=100, tolerance=1e-6)
    ours = answer.numbers["dominant"]
    other = peer.hessian(
        model, nn.functional.cross_entropy, data=(images, labels), cuda=False
    )
    theirs = other.eigenvalues(maxIter=2000, tol=1e-7, top_n=1)[0][0]
    assert abs(ours / theirs - 1) < 1e-3, (ours, theirs)
