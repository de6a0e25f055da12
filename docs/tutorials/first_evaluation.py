# %% [markdown]
# # Evaluate a model of your own
#
# You have a trained classifier. How many of its answers survive an adversary? In this
# tutorial you
#
# - train a small network with plain PyTorch,
# - evaluate it in one call, and read the table that comes back,
# - find out which images broke, and look at them,
# - draw accuracy over the radius of the attack.
#
# It takes about a quarter of a minute on one core. There is nothing to download: the data
# are scikit-learn's 1,797 handwritten digits, 8x8 pixels each.

# %%
import os

import torch
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import advnorm

SMALL = os.environ.get("ADVNORM_TUTORIALS") == "small"  # a quick run, for tests
EPOCHS, TEST = (8, 60) if SMALL else (20, 360)

# %% [markdown]
# ## Your model
#
# Nothing here is special. The images are floats in [0, 1], and the network returns logits.
# If your network expects standardized images, put the standardization inside of it
# (`advnorm.models.Standardize`): the adversary's radius is measured in pixels.

# %%
digits = load_digits()
images = torch.from_numpy(digits.images[:, None] / 16).float()
labels = torch.from_numpy(digits.target)
test_images, test_labels = images[:TEST], labels[:TEST]
images, labels = images[360:], labels[360:]

torch.manual_seed(0)
model = nn.Sequential(
    *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
    *(nn.Conv2d(16, 32, 3, padding=1, stride=2), nn.BatchNorm2d(32), nn.ReLU()),
    *(nn.Flatten(), nn.Linear(32 * 4 * 4, 10)),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
for _ in range(EPOCHS):
    for rows in torch.randperm(len(images)).split(64):
        optimizer.zero_grad()
        cross_entropy(model(images[rows]), labels[rows]).backward()
        optimizer.step()

# %% [markdown]
# ## Evaluate it
#
# One call. `Linf(0.1)` is the threat: every pixel may change by at most 0.1.

# %%
threat = advnorm.Linf(0.1)
result = advnorm.evaluate(model, test_images, test_labels, threat)
print(result)

# %% [markdown]
# There is one line for each **condition**, a way of testing the same images:
#
# - `clean`: the images as they are.
# - `fgsm`: one gradient step, the weakest attack.
# - `pgd-50`: fifty steps, from a random start inside the ball.
#
# Behind the name stand the accuracy, its 95% interval and the number of images. The
# interval says what other images of the same kind could have given. Look at its width
# before you compare two models: with few images it is wide.
#
# An accuracy under attack is an upper bound. A stronger attack can only break more.
#
# Numbers for your own code are in `table()`, which gives plain dictionaries.

# %%
clean, fgsm, pgd = result.table()
for row in (clean, fgsm, pgd):
    print(f"{row['condition']:7} {row['correct']} of {row['n']} right")
assert pgd["accuracy"] <= fgsm["accuracy"] <= clean["accuracy"]

# %% [markdown]
# ## A stronger attack
#
# How sure is the last line? Ask for a suite: several attacks, and an image is robust only
# if it withstands all of them. `strong` has two variants of Auto-PGD, and Square, which
# needs no gradients. `keep="adversarial"` keeps the images that they found.

# %%
strong = advnorm.evaluate(
    model, test_images, test_labels, threat, conditions=["strong"], keep="adversarial"
)
print(strong)

# %% [markdown]
# Compare it with `pgd-50` above. Close numbers are a good sign. A large gap would mean that
# `pgd-50` had not seen the whole truth: [is this robustness real?](real_robustness.py) is a
# tutorial of its own.
#
# ## Which images broke?
#
# Every image has a **verdict**. `sample_table()` has one row for each image: the label, the
# prediction under attack, and `by`, the attack that broke it.

# %%
rows = strong.sample_table()
broken = [row for row in rows if row["by"]]
wrong_from_the_start = [row for row in rows if not row["robust"] and not row["by"]]
print(
    f"{len(rows)} images: {len(broken)} broken, {len(wrong_from_the_start)} wrong already"
)
for name in sorted({row["by"] for row in broken}):
    print(f"  broken by {name}: {sum(row['by'] == name for row in broken)}")

# %% [markdown]
# The attacks of a suite run one after the other, and each sees only what the ones before it
# left. So a small number at a later attack does not mean that it is weak.
#
# Some digits break more easily than others.

# %%
print("digit  broken")
for digit in range(10):
    verdicts = [row for row in rows if row["label"] == digit]
    count = sum(bool(row["by"]) for row in verdicts)
    print(f"{digit:5}  {count:2} of {len(verdicts)}")

# %% [markdown]
# There are few images of each digit. Take these shares as a hint of where to look, not as
# a ranking.
#
# Look at some of them: the image, what the attack made of it, and the difference.

# %%
# alt: Four test digits in columns. The upper row shows them as they are with their label,
# the middle row the adversarial images with the wrong prediction, and the lower row the
# difference, which spreads over many pixels.
adversarial = strong.adversarial["strong_linf_0.1"]
clean_pixels, changed_pixels = test_images.numpy(), adversarial.numpy()
figure, axes = plt.subplots(3, 4, figsize=(5.8, 4.6))
for column, row in zip(axes.T, broken, strict=False):
    before, after = clean_pixels[row["sample"], 0], changed_pixels[row["sample"], 0]
    column[0].imshow(before, cmap="gray", vmin=0, vmax=1)
    column[0].set_title(f"label {row['label']}")
    column[1].imshow(after, cmap="gray", vmin=0, vmax=1)
    column[1].set_title(f"seen as {row['prediction']}")
    column[2].imshow(after - before, cmap="PuOr", vmin=-0.1, vmax=0.1)
for place in axes.flat:
    place.set(xticks=[], yticks=[])
axes[2, 0].set_ylabel("difference")
plt.tight_layout()
plt.show()

# %% [markdown]
# In the lower row purple pixels went up and orange ones down; the darkest by the whole
# radius.
#
# No image left the ball. `evaluate` counts a success only after it has checked this.

# %%
assert (adversarial - test_images).abs().max() <= 0.1 + 1e-6
assert adversarial.min() >= 0 and adversarial.max() <= 1

# %% [markdown]
# ## Accuracy over radii
#
# One radius is one point of a curve. Give several threats, and `evaluate` answers at each.

# %%
radii = [0.02, 0.05, 0.1, 0.15, 0.2, 0.3]
curve = advnorm.evaluate(
    model,
    test_images,
    test_labels,
    [advnorm.Linf(eps) for eps in radii],
    conditions=["clean", "pgd-50"],
)
print(curve)

# %%
# alt: Accuracy over the radius of the attack, falling from the clean accuracy at radius 0,
# with a band for the 95% interval and a dotted line for guessing at 10%.
points = curve.table()
eps = [row["eps"] or 0 for row in points]
figure, axes = plt.subplots()
axes.fill_between(eps, [r["low"] for r in points], [r["high"] for r in points], alpha=0.25)
axes.plot(eps, [row["accuracy"] for row in points], marker="o", label="PGD, 50 steps")
axes.axhline(0.1, linestyle=":", color="C4", label="guessing")
axes.set(xlabel="radius eps of the Linf ball", ylabel="accuracy", ylim=(0, 1))
axes.legend()
plt.show()

# %% [markdown]
# Two things to look at:
#
# - The curve must fall, and it must reach zero where the ball is large enough to turn any
#   digit into another. A curve that stays up there is a sign of a broken attack.
# - The band is the 95% interval at each radius.

# %%
accuracies = [row["accuracy"] for row in points]
assert accuracies == sorted(accuracies, reverse=True)
assert accuracies[-1] < 0.1

# %% [markdown]
# ## What next?
#
# - This model was trained on clean images only. [Adversarial training, with and without
#   batch norm](with_and_without_batch_norm.py) does better.
# - [Certificates](certificates.py) give a lower bound where attacks give an upper one.
