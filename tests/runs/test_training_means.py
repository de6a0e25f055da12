"""The means of a training set's classes, which questions of a run are asked with."""

import torch

from advnorm.data import load
from advnorm.data.subsets import select
from advnorm.runs.diagnose import _class_means


def test_they_are_those_of_the_training_images_alone():
    data = select(load("digits"), classes=(3, 7))
    means = _class_means(data)
    order = torch.arange(len(data.train))
    cpu = torch.device("cpu")
    batch = next(data.train.batches(order, batch_size=len(order), device=cpu))
    for label in (0, 1):
        expected = batch.images[batch.labels == label].double().mean(0)
        torch.testing.assert_close(means[label], expected)
    assert means.shape == (2, *data.shape)
