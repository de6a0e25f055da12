# %% [markdown]
# # Is this robustness real?
#
# A model can look robust because the attack fails, and not because the model resists. This
# is called gradient masking. In this tutorial you
#
# - build a model that looks robust, and is not,
# - see what an evaluation says about it by itself,
# - run an audit, which looks harder,
# - attack it in two ways that do not depend on its gradients.
#
# How long it ran, the foot of its page says.

# %%
import os
from textwrap import fill

import torch
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import advnorm
from advnorm import attacks

SMALL = os.environ.get("ADVNORM_TUTORIALS") == "small"  # a quick run, for tests
TEST = 40 if SMALL else 100

digits = load_digits()
images = torch.from_numpy(digits.images[:, None] / 16).float()
labels = torch.from_numpy(digits.target)
test_images, test_labels = images[:TEST], labels[:TEST]
images, labels = images[360:], labels[360:]
threat = advnorm.Linf(0.1)

# %% [markdown]
# ## A model without a defense
#
# A small network, trained on clean images only. Nobody expects it to resist.

# %%
torch.manual_seed(0)
plain = nn.Sequential(
    *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
    *(nn.Conv2d(16, 32, 3, padding=1, stride=2), nn.BatchNorm2d(32), nn.ReLU()),
    *(nn.Flatten(), nn.Linear(32 * 4 * 4, 10)),
)
optimizer = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
for _ in range(10):
    for rows in torch.randperm(len(images)).split(64):
        optimizer.zero_grad()
        cross_entropy(plain(images[rows]), labels[rows]).backward()
        optimizer.step()

# %%
plain.eval()


def accuracy(model, examples):
    """Return the share of the test images that a model gets right."""
    return (model(examples).argmax(1) == test_labels).double().mean().item()


def pgd_accuracy(model):
    """Return the accuracy under PGD, as many scripts compute it."""
    settings = {"steps": 50, "step_size": 0.005}
    return accuracy(model, attacks.pgd(model, test_images, test_labels, threat, **settings))


print(f"clean: {accuracy(plain, test_images):.0%}, under PGD: {pgd_accuracy(plain):.0%}")


# %% [markdown]
# ## A "defense"
#
# Round every pixel to 17 levels before the network sees it. The argument sounds good: small
# changes are rounded away. Clean images do not change at all, because these digits have 17
# levels anyway.


# %%
class Rounded(nn.Module):
    """A network behind pixels that are rounded."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return self.network((x * 16).round() / 16)


defended = Rounded(plain)
assert torch.equal((test_images * 16).round() / 16, test_images)
claimed = pgd_accuracy(defended)
print(f"clean: {accuracy(defended, test_images):.0%}, under PGD: {claimed:.0%}")
assert claimed > pgd_accuracy(plain) + 0.2

# %% [markdown]
# Compare the two lines. A row of a table could say that rounding makes the network robust,
# at no cost. It would be wrong.
#
# ## What an evaluation says
#
# `evaluate` tries a few checks before it attacks.

# %%
result = advnorm.evaluate(
    defended, test_images, test_labels, threat, conditions=["clean", "pgd-50"]
)
clean, attacked = result.table()
print(f"accuracy: {attacked['accuracy']:.0%}")
for text in (*attacked["flags"], *attacked["notes"]):
    print(fill(text, 84, initial_indent="- ", subsequent_indent="  "))

# %% [markdown]
# Read the flags first. The slope of the loss is exactly zero: rounding has no gradient. So
# PGD stays where it starts, and reports what it has not tried.
#
# Then read the note. Because gradients are suspect, `evaluate` has added two attacks that
# need none. `square-1000` looks at scores, `hop_skip_jump-20` at decisions alone. Their
# successes count, and the note says what `pgd-50` alone would have claimed.

# %%
assert any("zero_gradients" in flag for flag in attacked["flags"])
assert attacked["accuracy"] < claimed - 0.2

# %% [markdown]
# Here is the model without the defense, for comparison. There is nothing to flag.

# %%
honest = advnorm.evaluate(
    plain, test_images, test_labels, threat, conditions=["clean", "pgd-50"]
)
print(honest)
assert not any(row["flags"] for row in honest.table())

# %% [markdown]
# ## An audit
#
# `audit` makes all checks: it compares weak attacks with strong ones, small radii with
# large ones, and gradients with finite differences.

# %%
audit = advnorm.audit(defended, test_images, test_labels, threat)
print("PGD-10:        ", audit.weak)
print("strong attacks:", audit.strong)
print(f"{len(audit.flagged)} of {len(audit.checks)} checks flagged:")
for check in audit.checks:
    if check.status == "flagged":
        numbers = ", ".join(f"{key} {value:.3g}" for key, value in check.numbers.items())
        print(f"- {check.name}: {numbers}")

# %% [markdown]
# Each check has a sentence too (`check.says`): what was measured, and what to do about it.
# Two kinds of flags are worth knowing by name:
#
# - `black_box_stronger`: an attack that knows less does better. For a sound model this
#   cannot be, because the stronger attacker could ignore what it knows.
# - `above_chance_at_any_eps`: the attack may replace the whole image and still fails. Then
#   it is the attack that is broken.
#
# Use 100 images or more for an audit. With few images a check needs a large effect to be
# sure.

# %%
assert "zero_gradients" in audit.flagged
assert SMALL or "black_box_stronger" in audit.flagged

# %% [markdown]
# ## Attack it by decisions
#
# HopSkipJump sees nothing but the class that the model answers. No trick with gradients can
# mislead it. It needs thousands of queries for each image.

# %%
by_decisions = advnorm.evaluate(
    defended, test_images, test_labels, threat, conditions=["hop_skip_jump-20"]
)
(decisions,) = by_decisions.table()
print(f"accuracy under hop_skip_jump-20: {decisions['accuracy']:.0%}")

# %% [markdown]
# ## Attack it by its own gradients
#
# An attacker who knows the defense repairs the gradient. In the backward pass, pretend that
# rounding is the identity (BPDA, Athalye et al., 2018). One line does it: the outputs stay
# exactly those of the defense.


# %%
def repaired(x):
    """Compute what the defended model does; gradients pass as if nothing was rounded."""
    levels = x * 16
    return plain((levels + (levels.round() - levels).detach()) / 16)


assert torch.allclose(repaired(test_images), defended(test_images), atol=1e-4)
adversarial = attacks.pgd(
    repaired, test_images, test_labels, threat, steps=50, step_size=0.005
)
adaptive = accuracy(defended, adversarial)
print(f"accuracy of the defended model: {adaptive:.0%}")
assert (adversarial - test_images).abs().max() <= 0.1 + 1e-6
assert adaptive < claimed - 0.2

# %% [markdown]
# The images were made with the repaired gradient and judged by the defended model itself.
#
# ## Claimed and real

# %%
# alt: Horizontal bars with the accuracy of the defended model under each attack. The bar of
# plain PGD, which is what the defense claims, is much longer than those of the attacks that
# do not depend on its gradients.
bars = {
    "claimed: PGD": claimed,
    "evaluate, with what it adds": attacked["accuracy"],
    "audit, strong attacks": audit.strong.fraction,
    "decisions alone": decisions["accuracy"],
    "repaired gradient": adaptive,
    "PGD, without the defense": pgd_accuracy(plain),
}
colors = ["C1", *["C0"] * 4, "C4"]
figure, axes = plt.subplots(figsize=(5.8, 3.2))
drawn = axes.barh(list(bars), list(bars.values()), color=colors)
axes.bar_label(drawn, [f"{value:.0%}" for value in bars.values()], padding=4)
axes.set(xlabel=f"accuracy at eps 0.1, {TEST} images", xlim=(0, 1.1))
axes.invert_yaxis()
axes.grid(axis="y", visible=False)
plt.show()

# %% [markdown]
# Look at the first bar and the four below it. The lowest of them is an upper bound on the
# truth, and even that may be too high: no attack proves that there is no better one.
#
# Then compare with the last bar. Did the defense help at all? With this many images each
# bar has an interval of up to ten points on either side.
#
# ## What next?
#
# - All checks, with their limits and sources: [audit](../how-to/audit.md).
# - Certificates do not depend on any attack: [certified training](certificates.py).
