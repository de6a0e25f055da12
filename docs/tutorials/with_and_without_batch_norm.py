# %% [markdown]
# # Adversarial training, with and without batch norm
#
# Does batch norm help or hurt a network that is trained against an adversary? This tutorial
# asks on a small problem. You
#
# - train from a recipe, and change one setting of it,
# - read how a run went from its folder,
# - compare clean and robust accuracy over several seeds,
# - say how sure the comparison is.
#
# It takes about a minute on one core.

# %%
import os
import tempfile
from pathlib import Path
from statistics import mean, stdev

from matplotlib import pyplot as plt
from scipy import stats

import advnorm
from advnorm import recipes
from advnorm.recipe import Cosine, OptimizerSpec

SMALL = os.environ.get("ADVNORM_TUTORIALS") == "small"  # a quick run, for tests
EPOCHS, SEEDS = (2, range(2)) if SMALL else (10, range(5))
folder = Path(tempfile.mkdtemp())  # or any folder of yours

# %% [markdown]
# ## A recipe
#
# A recipe is everything that decides a training run. `advnorm list recipes` names those
# that come with the package. This one trains a small network on handwritten digits against
# PGD.

# %%
recipe = recipes.find("digits.pgd")
print("norm:     ", recipe.norm.name)
print("objective:", recipe.objective.name)
print("threat:   ", recipe.threat.norm, recipe.threat.eps)
print("attack:   ", recipe.attack.steps, "steps, statistics:", recipe.attack.statistics)

# %% [markdown]
# Look at the last word. `running` means that the attack inside training sees the running
# statistics of batch norm, and never moves them. Elsewhere this often depends on whether
# somebody has called `model.train()`. Here it is a setting, and it is recorded.
#
# Recipes are frozen. `replace` gives a changed copy. We train for fewer epochs than the
# recipe does, to save time.

# %%
schedule = Cosine(end=EPOCHS)
shorter = {"epochs": EPOCHS, "optimizer": OptimizerSpec(schedule=schedule)}
with_norm = recipes.find("digits.pgd").replace(**shorter)
without = recipes.find("digits.pgd_none").replace(**shorter)

print(
    [
        key
        for key in ("norm", "model", "optimizer", "attack", "threat")
        if getattr(with_norm, key) != getattr(without, key)
    ]
)

# %% [markdown]
# The two recipes differ in the norm, and in nothing else.
#
# ## Train
#
# One network by itself would tell little: another seed gives other weights, another order
# of the images, and another accuracy. So we train each recipe with several seeds.

# %%
runs = {
    (name, seed): advnorm.train(
        recipe.replace(seed=seed), folder / f"{name}-{seed}", device="cpu"
    )
    for name, recipe in {"batch norm": with_norm, "no norm": without}.items()
    for seed in SEEDS
}

# %% [markdown]
# A run is a folder. It holds the recipe, a line of metrics for each epoch, and checkpoints.

# %%
run = runs["batch norm", 0]
print(sorted(path.name for path in run.path.iterdir() if not path.name.startswith(".")))
last = run.epochs()[-1]
print(f"epoch {last.epoch}: loss {last.loss:.3f}")
print("held out, clean: ", last.validation_clean)
print("held out, attack:", last.validation_robust)
print("alarms:", last.alarms)

# %% [markdown]
# Held-out images are a part of the training data that the network does not train on. They
# choose the best checkpoint. The test images choose nothing.
#
# An alarm would say that training has gone wrong, for example that the network resists the
# attack that it trains against and no other.

# %%
# alt: Held-out accuracy under attack over the epochs of training, a thin line for each run,
# solid with batch norm and dashed without norm.
figure, axes = plt.subplots()
for (name, seed), run in runs.items():
    epochs = run.epochs()
    batch = name == "batch norm"
    axes.plot(
        [epoch.epoch for epoch in epochs],
        [epoch.validation_robust.fraction for epoch in epochs],
        color="C0" if batch else "C1",
        linestyle="-" if batch else "--",
        label=name if seed == 0 else None,
    )
axes.set(xlabel="epoch", ylabel="held-out accuracy under PGD", ylim=(0, 1))
axes.legend()
plt.show()

# %% [markdown]
# Each line is a run. Look at how far the lines of one color lie apart: this is what the
# seed alone does. A difference between the colors must be seen against it.
#
# Then look at the right end. Lines that still rise belong to networks that would gain from
# more epochs. A norm that learns faster has an advantage in a race as short as this one.
#
# ## Evaluate
#
# `load` gives the network of a run, with its best weights. The attack is stronger than that
# of training: 50 steps and two starts.

# %%
test = advnorm.data.load("digits").test
threat = advnorm.Linf(recipe.threat.eps)
clean, robust = {}, {}
for key, run in runs.items():
    result = advnorm.evaluate(
        advnorm.load(run), test, threat=threat, conditions=["clean", "pgd-50x2"]
    )
    clean[key], robust[key] = (100 * row["accuracy"] for row in result.table())
    assert not any(row["flags"] for row in result.table())

print("              seed   clean   PGD-50")
for name, seed in runs:
    print(f"{name:12}  {seed:4}   {clean[name, seed]:4.1f}%   {robust[name, seed]:4.1f}%")

# %% [markdown]
# The `assert` holds that no accuracy is flagged. A flag is a reason to doubt a number.
#
# ## Compare
#
# A mean over seeds needs an interval. With few seeds two standard errors are too short; the
# quantile of Student's t is right.


# %%
def interval(values):
    """Return the mean over seeds, and half the width of its 95% interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * stdev(values) / len(values) ** 0.5
    return mean(values), half


for name in ("batch norm", "no norm"):
    for title, accuracies in {"clean": clean, "PGD-50": robust}.items():
        center, half = interval([accuracies[name, seed] for seed in SEEDS])
        print(f"{name:10}  {title:6}  {center:4.1f}% ± {half:.1f}")

# %% [markdown]
# Two intervals that overlap do not yet say that there is no difference. Both recipes used
# the same seeds, so take the difference of each pair, and then the interval.

# %%
differences = [robust["batch norm", seed] - robust["no norm", seed] for seed in SEEDS]
center, half = interval(differences)
print("differences:", " ".join(f"{d:+.1f}" for d in differences))
print(f"batch norm minus no norm, PGD-50: {center:+.1f} ± {half:.1f} points")
if abs(center) <= half:
    print("These seeds do not decide which is more robust.")
else:
    print("More robust here:", "batch norm" if center > 0 else "no norm")

# %% [markdown]
# This is the one question that the experiment was made for. Whoever asks many questions of
# the same runs must correct for their number; [`study`](which_norm.py) does.
#
# The interval is about seeds. It says nothing about other images, other networks, other
# data or longer training. On larger problems the papers do not agree with each other: see
# [what was measured of them](../results/README.md).

# %%
# alt: Clean accuracy across, accuracy under PGD-50 upwards, one marker for each run:
# circles with batch norm, squares without.
figure, axes = plt.subplots()
for name, marker in {"batch norm": "o", "no norm": "s"}.items():
    x = [clean[name, seed] for seed in SEEDS]
    y = [robust[name, seed] for seed in SEEDS]
    axes.errorbar(
        mean(x),
        mean(y),
        xerr=interval(x)[1],
        yerr=interval(y)[1],
        fmt=marker,
        markersize=9,
        capsize=4,
        label=name,
    )
    axes.plot(x, y, marker, color=axes.lines[-1].get_color(), alpha=0.5, markersize=4)
axes.set(xlabel="clean accuracy, %", ylabel="accuracy under PGD-50, %")
axes.legend()
plt.show()

# %% [markdown]
# Large markers are means with their 95% intervals, small ones are runs. Up and to the right
# is better.
#
# ## What next?
#
# - The same from the command line: `advnorm train digits.pgd --out runs/a --set
#   norm.name=none`. See [training](../how-to/training.md).
# - Compare more than two norms: [which norm?](which_norm.py)
# - Clean and adversarial images have different statistics, and batch norm has only one set
#   of them: [mixture and dual norm](mixture_and_dual_norm.py).
