"""Principal components against numpy, and the three domains of a network."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from advnorm import diagnosis
from advnorm.diagnosis.attacked_domains import three_domains
from advnorm.diagnosis.features import gather_features
from advnorm.diagnosis.pca import cloud_gaps
from advnorm.diagnosis.principal_components import project_to_plane
from advnorm.threat import Linf


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 30), st.integers(1, 40), st.integers(0, 99))
def test_it_is_numpys_svd(n, features, seed):
    rows = torch.randn(n, features, generator=torch.Generator().manual_seed(seed))
    rows = rows * torch.linspace(3, 0.5, features)  # apart, so that each axis is unique
    projection = project_to_plane(rows)
    centred = rows.double().numpy() - rows.double().numpy().mean(0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    kept = min(2, len(s))
    expected = (u * s)[:, :kept]
    expected = expected * np.sign(expected[np.abs(expected).argmax(0), range(kept)])
    np.testing.assert_allclose(
        projection.points[:, :kept].abs(), np.abs(expected), atol=1e-6
    )
    if kept == 2 and s[0] > 1.01 * s[1] and (n > 3 and s[1] > 1e-3):
        np.testing.assert_allclose(projection.points, expected, atol=1e-5)
    shares = s**2 / max((s**2).sum(), 1e-300)
    np.testing.assert_allclose(projection.explained[:kept], shares[:kept], atol=1e-9)


def test_wide_rows_are_summed_in_parts(monkeypatch):
    rows = torch.randn(6, 50, generator=torch.Generator().manual_seed(0))
    whole = project_to_plane(rows)
    monkeypatch.setattr("advnorm.diagnosis.principal_components._COLUMNS", 7)
    torch.testing.assert_close(project_to_plane(rows).points, whole.points)


def test_constant_rows_have_no_components():
    projection = project_to_plane(torch.ones(4, 3))
    assert (projection.points == 0).all() and projection.explained == (0.0, 0.0)


def test_gaps_by_hand():
    clean = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])  # variances 1 and 0
    other = torch.tensor([[3.0, 4.0], [3.0, 4.0]])  # no spread
    gaps = cloud_gaps(torch.cat([clean, other]), ["clean", "pgd"], 2)
    assert gaps == {"pgd": pytest.approx(5 / 0.5**0.5)}


def test_points_are_those_of_the_features_of_each_domain():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3), nn.BatchNorm1d(3)
    )
    images, labels = torch.rand(10, 4), torch.arange(10) % 3
    settings = {"steps": 2, "suite": "quick"}
    answer = diagnosis.pca(model, images, labels, threat=Linf(0.2), where="4", **settings)
    model.eval()
    seen = three_domains(model, images, labels, Linf(0.2), **settings)
    rows = torch.cat([gather_features(model, x, "4") for x in seen.values()])
    (panel,) = answer.panels
    assert [series.name for series in panel.series] == ["clean", "pgd-2", "quick"]
    drawn = torch.tensor(
        [(x, y) for s in panel.series for x, y in zip(s.x, s.y, strict=True)]
    )
    expected = project_to_plane(rows)
    torch.testing.assert_close(drawn.double(), expected.points, atol=1e-5, rtol=1e-4)
    apart = cloud_gaps(expected.points, list(seen), 10)
    assert answer.numbers == {
        "4: variance shown": pytest.approx(sum(expected.explained)),
        "4: clean to pgd-2": pytest.approx(apart["pgd-2"], rel=1e-4),
        "4: clean to quick": pytest.approx(apart["quick"], rel=1e-4),
    }
    assert (
        len(diagnosis.pca(model, images, labels, threat=Linf(0.2), **settings).panels) == 2
    )


def test_bad_settings_are_one_sentence():
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))
    images, labels = torch.rand(3, 4), torch.zeros(3, dtype=torch.int64)
    with pytest.raises(ValueError, match="needs a threat"):
        diagnosis.pca(model, images, labels)
    with pytest.raises(ValueError, match="no layer with features 'x'"):
        diagnosis.pca(model, images, labels, threat=Linf(0.1), where="x", suite="quick")
