"""Fine-tune the norms of a trained network against an attack; all other weights are frozen.

Command: python examples/finetune_norms.py
Cost: about 4 s on 2 cores.
Prints: how many parameters are trained, then clean and robust accuracy before and after,
with 95% intervals.

xie2020 (section 4.4) asks how much of robustness the norms alone can carry. The running
statistics adapt as well: they are buffers, not parameters.
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import advnorm
from advnorm import attacks, norms

THREAT = advnorm.Linf(0.1)


def batches(epochs: int) -> list[Tensor]:
    """Return the rows of every batch, shuffled in each epoch."""
    return [rows for _ in range(epochs) for rows in torch.randperm(len(images)).split(64)]


def evaluate() -> str:
    """Return clean and robust accuracy on the test images."""
    conditions = ["clean", "pgd-20"]
    model.eval()
    result = advnorm.evaluate(
        model, test_images, test_labels, THREAT, conditions=conditions
    )
    return str(result)


torch.manual_seed(0)
digits = load_digits()
images = torch.from_numpy(digits.images[:, None] / 16).float()  # in [0, 1]
labels = torch.from_numpy(digits.target)
test_images, test_labels = images[:360], labels[:360]
images, labels = images[360:], labels[360:]
model = nn.Sequential(
    *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
    *(nn.Conv2d(16, 32, 3, padding=1, stride=2), nn.BatchNorm2d(32), nn.ReLU()),
    *(nn.Flatten(), nn.Linear(32 * 4 * 4, 10)),
)

# A standard training, in the place of the weights that you already have.
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for rows in batches(epochs=4):
    optimizer.zero_grad()
    cross_entropy(model(images[rows]), labels[rows]).backward()
    optimizer.step()
before = evaluate()
trained = {name: value.clone() for name, value in model.state_dict().items()}

model.requires_grad_(False)
tuned = list(norms.norm_parameters(model))
for parameter in tuned:
    parameter.requires_grad_(True)
optimizer = torch.optim.SGD(tuned, lr=0.05, momentum=0.9)

model.train()
for rows in batches(epochs=6):
    with norms.mode(model, "running"):  # the attack does not move the statistics
        adversarial = attacks.pgd(
            model, images[rows], labels[rows], THREAT, steps=3, step_size=0.06
        )
    optimizer.zero_grad()
    cross_entropy(model(adversarial), labels[rows]).backward()
    optimizer.step()
after = evaluate()

count = sum(parameter.numel() for parameter in tuned)
print(f"{count} of {sum(p.numel() for p in model.parameters())} parameters are trained")
print(f"before\n{before}\nafter\n{after}")
