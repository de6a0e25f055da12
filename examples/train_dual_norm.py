"""Train your own network with dual norm: one set of statistics for each domain.

Command: python examples/train_dual_norm.py
Cost: about 10 s on 2 cores.
Prints: the loss of each epoch, then clean and robust accuracy on the test images with
their 95% intervals.

Every step makes a clean and an adversarial half of one batch. `norms.mode` keeps the attack
from moving the running statistics, and `norms.route` says which rows are adversarial.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import advnorm
from advnorm import attacks, norms

EPOCHS, BATCH, THREAT = 5, 64, advnorm.Linf(0.1)


def network() -> nn.Sequential:
    """Return a plain network of 8x8 images, with PyTorch's batch norm."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, padding=1, stride=2), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(32 * 4 * 4, 10)),
    )


torch.manual_seed(0)
digits = load_digits()
images = torch.from_numpy(digits.images[:, None] / 16).float()  # in [0, 1]
labels = torch.from_numpy(digits.target)
test_images, test_labels = images[:360], labels[:360]
images, labels = images[360:], labels[360:]

model = norms.convert(network(), "dual")
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)

for epoch in range(EPOCHS):
    model.train()
    total = 0.0
    for rows in torch.randperm(len(images)).split(BATCH):
        clean, y = images[rows], labels[rows]

        # The attack sees the running statistics, of the adversarial domain. Each call
        # draws a new random start.
        with norms.mode(model, "running"), norms.route(model, domain="adversarial"):
            adversarial = attacks.pgd(model, clean, y, THREAT, steps=5, step_size=0.05)

        # One pass over both halves: each moves the statistics of its own domain.
        with norms.route(model, clean=len(clean)):
            logits = model(torch.cat([clean, adversarial]))
        loss = cross_entropy(logits, y.repeat(2))

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(rows)
    print(f"epoch {epoch + 1:2d}  loss {total / len(images):.3f}")

model.eval()
conditions = ["clean", "pgd-20x2"]
print(advnorm.evaluate(model, test_images, test_labels, THREAT, conditions=conditions))
