# %% [markdown]
# # Certified training and certificates
#
# An attack that fails proves nothing. A certificate is a proof: no change inside the ball
# alters the answer. In this tutorial you
#
# - certify a network that was trained against attacks, with three methods,
# - train a network for certificates,
# - see how far proofs and attacks are apart, for each radius.
#
# How long it ran, the foot of its page says.

# %%
import os
import tempfile
from pathlib import Path

from matplotlib import pyplot as plt

import advnorm
from advnorm import recipes
from advnorm.recipe import (
    Cosine,
    ObjectiveSpec,
    OptimizerSpec,
    Ramp,
    ThreatSpec,
    ValidationSpec,
)

SMALL = os.environ.get("ADVNORM_TUTORIALS") == "small"  # a quick run, for tests
EPOCHS, TEST = (3, 60) if SMALL else (12, 360)
folder = Path(tempfile.mkdtemp())  # or any folder of yours
test = advnorm.data.load("digits").test.take(range(TEST))

# %% [markdown]
# ## A network that was trained against attacks

# %%
adversarial_training = recipes.find("digits.pgd").replace(
    epochs=EPOCHS,
    threat=ThreatSpec(eps=0.1),
    optimizer=OptimizerSpec(schedule=Cosine(end=EPOCHS)),
)
run = advnorm.train(adversarial_training, folder / "pgd", device="cpu")
pgd_trained = advnorm.load(run)

# %% [markdown]
# `certify` answers for each image. Its three methods take more and more time, and each
# proves at least as much as the one before.

# %%
radii = [0.01, 0.02, 0.04, 0.06, 0.08, 0.1]
methods = ["ibp", "crown-ibp", "crown"]


def certified(model, method, eps):
    """Return which test images a method certifies at a radius."""
    threat = advnorm.Linf(eps)
    return advnorm.certify(model, test, threat=threat, method=method).certified


def table(model):
    """Print how many images each method certifies at each radius; return the counts."""
    counts = {m: [int(certified(model, m, eps).sum()) for eps in radii] for m in methods}
    print("radius    ", "  ".join(f"{eps:4}" for eps in radii))
    for method, row in counts.items():
        print(f"{method:10}", "  ".join(f"{count:4}" for count in row), f" of {TEST}")
    assert all(a <= b <= c for a, b, c in zip(*counts.values(), strict=True))
    return counts


with_pgd = table(pgd_trained)

# %% [markdown]
# Read each row from left to right: the larger the ball, the fewer proofs. Then read each
# column from top to bottom: that is what a tighter method is worth on this network.
#
# An image without a certificate may still be robust. Nothing is known about it.
#
# ## Train for certificates
#
# Interval bound propagation (IBP) sends a box of images through the network, and training
# minimizes an upper bound on the loss in the box. The start is delicate, so the radius
# grows slowly (`threat.schedule`), and the weight of the clean loss falls
# (`objective.kappa_schedule`). The best epoch is the one with the most certified held-out
# images.

# %%
growing = {"first": 1, "last": EPOCHS * 2 / 3}  # in epochs
certified_training = adversarial_training.replace(
    threat=ThreatSpec(schedule=Ramp(**growing)),
    objective=ObjectiveSpec(
        name="ibp", kappa=1.0, kappa_schedule=Ramp(**growing, start=1, stop=0.5)
    ),
    optimizer=OptimizerSpec(name="adam", lr=0.002),
    validation=ValidationSpec(robust="ibp", select_by="robust"),
)
run = advnorm.train(certified_training, folder / "ibp", device="cpu")
ibp_trained = advnorm.load(run)

with_ibp = table(ibp_trained)
assert SMALL or sum(with_ibp["ibp"]) > sum(with_pgd["ibp"])

# %% [markdown]
# Compare the rows of `ibp` in the two tables. This training minimizes the very bound that
# `ibp` computes, so the bound is tight on what it made.
#
# ## Proofs and attacks
#
# A certificate is a lower bound on the truth, an attack an upper bound. `evaluate` gives
# both at once: certificates are conditions like attacks.

# %%
threats = [advnorm.Linf(eps) for eps in radii]
results = {}
for name, model in {"PGD": pgd_trained, "IBP": ibp_trained}.items():
    results[name] = advnorm.evaluate(
        model, test, threat=threats, conditions=["clean", "pgd-50", "crown"]
    )
    print(f"trained with {name}\n{results[name]}\n")

# %% [markdown]
# No image is both certified and broken. `evaluate` compares them, and would raise an error.
# Here is the same check by hand, image by image.

# %%
for result in results.values():
    for eps in radii:
        proved = result.verdicts[f"crown_linf_{eps}"].robust
        survived = result.verdicts[f"pgd-50_linf_{eps}"].robust
        assert not any(p and not s for p, s in zip(proved, survived, strict=True))

# %% [markdown]
# Three things can be known about an image at a radius: it is certified, it is broken (or
# wrong from the start), or it is open.

# %%
for name, result in results.items():
    proved = result.verdicts["crown_linf_0.06"].robust
    survived = result.verdicts["pgd-50_linf_0.06"].robust
    print(
        f"trained with {name}, at eps 0.06: {sum(proved)} certified, "
        f"{sum(survived) - sum(proved)} open, {TEST - sum(survived)} broken"
    )

# %%
# alt: Two panels, for the network trained with PGD and the one trained with IBP. In each,
# an upper curve shows accuracy under PGD over the radius, a lower curve the certified
# accuracy, and the band between them the images about which nothing is known.
figure, panels = plt.subplots(1, 2, figsize=(5.8, 3.3), sharey=True)
for axes, (name, result) in zip(panels, results.items(), strict=True):
    clean, *rows = result.table()
    upper, lower = (
        [
            clean["accuracy"],
            *(row["accuracy"] for row in rows if row["condition"] == condition),
        ]
        for condition in ("pgd-50", "crown")
    )
    axes.plot([0, *radii], upper, marker="o", color="C1", label="PGD-50")
    axes.plot([0, *radii], lower, marker="s", color="C0", label="certified")
    axes.fill_between([0, *radii], lower, upper, color="C4", alpha=0.25, label="open")
    axes.set(title=f"trained with {name}", xlabel="radius", ylim=(0, 1.02))
panels[0].set_ylabel("accuracy")
panels[0].legend(loc="lower left")
plt.tight_layout()
plt.show()

# %% [markdown]
# The truth lies in the band. Look at three things:
#
# - how wide the band is: that is what nobody knows,
# - how high the lower curve is at the largest radius: that is what you can promise,
# - how high both curves begin: that is what the promise costs on clean images.

# %%
largest = {name: result.verdicts["crown_linf_0.1"] for name, result in results.items()}
assert SMALL or sum(largest["IBP"].robust) > sum(largest["PGD"].robust)

# %% [markdown]
# At the largest radius more images are certified after certified training. This is one run
# of each on small images. At [the scale of MNIST](../results/certified-mnist.md) there are
# measurements with and without batch norm.
#
# ## What next?
#
# - What is supported, what is refused, and what makes a certificate sound:
#   [certificates](../how-to/certify.md).
# - From the command line: `advnorm certify runs/a --method crown`.
