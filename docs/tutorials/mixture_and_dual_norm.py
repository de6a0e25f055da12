# %% [markdown]
# # Mixture and dual norm, by hand
#
# Adversarial images have other statistics than clean ones, and batch norm mixes the two.
# Mixture norm and dual norm keep them apart. In this tutorial you
#
# - write a training loop of your own that says, for each pass, whose statistics are used,
#   which rows are clean, and whether running statistics move,
# - watch the moments of the two domains drift apart,
# - ask a network with two branches for both of its answers,
# - let a gate choose instead.
#
# It takes about half a minute on one core.

# %%
import os

import torch
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import advnorm
from advnorm import attacks, norms

SMALL = os.environ.get("ADVNORM_TUTORIALS") == "small"  # a quick run, for tests
EPOCHS, TEST = (1, 60) if SMALL else (8, 360)
THREAT = advnorm.Linf(0.15)

digits = load_digits()
images = torch.from_numpy(digits.images[:, None] / 16).float()
labels = torch.from_numpy(digits.target)
test_images, test_labels = images[:TEST], labels[:TEST]
images, labels = images[360:], labels[360:]


# %%
def network():
    """Return a plain network for 8x8 images, with PyTorch's batch norm."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, padding=1, stride=2), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(32 * 4 * 4, 10)),
    )


# %% [markdown]
# ## From batch norm to mixture norm
#
# `convert` takes any network and returns a copy with other norms. Weights and statistics
# are kept: each branch begins as the batch norm that was there.

# %%
torch.manual_seed(0)
plain = network()
mixture = norms.convert(plain, "mixture")
print(norms.count_norms(plain), "->", norms.count_norms(mixture))
mixture[1]

# %% [markdown]
# Every mixture norm holds two batch norms, `clean` and `adversarial`.
#
# ## One step
#
# Two scopes say all that matters. Look at them one at a time.
#
# `norms.mode(model, "running")` is for the attack. It sees the running statistics, as an
# attacker of the finished network does, and does not move them.
#
# `norms.route` says which rows belong to which domain. During the attack all rows are
# adversarial. In the training pass the first half is clean and the rest is adversarial, so
# each half moves the statistics of its own branch.


# %%
def attack(model, clean, y):
    """Return adversarial images; the running statistics stay as they are."""
    with norms.mode(model, "running"), norms.route(model, domain="adversarial"):
        return attacks.pgd(model, clean, y, THREAT, steps=5, step_size=0.05)


def noise(model, clean, y):
    """Return images with random noise from the same ball, for comparison."""
    return (clean + torch.empty_like(clean).uniform_(-0.15, 0.15)).clamp(0, 1)


def step(model, optimizer, clean, y, perturb):
    """Take one step on a batch of clean and perturbed images."""
    perturbed = perturb(model, clean, y)
    with norms.route(model, clean=len(clean)):  # clean rows first
        logits = model(torch.cat([clean, perturbed]))
    optimizer.zero_grad()
    cross_entropy(logits, y.repeat(2)).backward()
    optimizer.step()


# %% [markdown]
# Check that the attack leaves the statistics alone. Both scopes end with their block, also
# after an error, and restore every layer.

# %%
before = {name: buffer.clone() for name, buffer in mixture.named_buffers()}
attack(mixture, images[:64], labels[:64])
assert all(torch.equal(before[name], buffer) for name, buffer in mixture.named_buffers())

# %% [markdown]
# ## Train, and watch the moments
#
# After each epoch, compare the running moments of the two branches. The distance is the
# root mean square over channels of the gaps in mean and in standard deviation, in units of
# the clean standard deviation. At 0 the branches have the same moments.


# %%
def distance(layer):
    """Return how far apart the moments of the two branches are."""
    clean, other = layer.branch("clean"), layer.branch("adversarial")
    gap = (clean.running_mean - other.running_mean).square()
    gap += (clean.running_var.sqrt() - other.running_var.sqrt()).square()
    return (gap / clean.running_var).mean().sqrt().item()


def train(model, perturb):
    """Train a network; return the distance at each mixture norm, after each epoch."""
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    layers = [x for x in model.modules() if isinstance(x, norms.MixtureNorm)]
    history = [[distance(layer) for layer in layers]]
    for _ in range(EPOCHS):
        model.train()
        for rows in torch.randperm(len(images)).split(64):
            step(model, optimizer, images[rows], labels[rows], perturb)
        history.append([distance(layer) for layer in layers])
    model.eval()
    return history


# %% [markdown]
# As a yardstick, a second network is trained with random noise from the same ball in the
# place of the attack: changes without an aim.

# %%
noisy = norms.convert(plain, "mixture")
with_attack, with_noise = train(mixture, attack), train(noisy, noise)
print("epoch   first norm: attack, noise   second norm: attack, noise")
for epoch, (a, b) in enumerate(zip(with_attack, with_noise, strict=True)):
    print(f"{epoch:5}   {a[0]:18.3f}  {b[0]:5.3f}   {a[1]:19.3f}  {b[1]:5.3f}")

# %%
# alt: Distance between the moments of the two branches over the epochs. Two panels, for the
# first and for the second norm, each with a solid line for training with the attack and a
# dashed line for training with noise. All begin at 0.
figure, axes = plt.subplots(1, 2, figsize=(5.8, 3.2), sharey=True)
for place, panel in enumerate(axes):
    panel.plot([each[place] for each in with_attack], marker="o", label="attack")
    panel.plot([each[place] for each in with_noise], "--", marker="s", label="noise")
    panel.set(title=("first norm", "second norm")[place], xlabel="epoch")
axes[0].set_ylabel("distance of the two branches")
axes[0].legend()
plt.tight_layout()
plt.show()

# %% [markdown]
# All four lines begin at 0, because the branches began as one. Compare the solid lines with
# the dashed ones: at the end the attack has moved the branches further apart than the
# noise, at both norms. A part of this is size, because the attack goes to the edge of the
# ball more often than noise does. A single batch norm would normalize both domains by
# moments in between.

# %%
assert with_attack[0] == [0, 0]
assert all(a > b for a, b in zip(with_attack[-1], with_noise[-1], strict=True))

# %% [markdown]
# ## Two answers
#
# The trained network has two answers for every image, one a branch. `evaluate` uses the
# branch of the present route, attacks that branch, and names it in the result.

# %%
results = {}
for domain in ("clean", "adversarial"):
    with norms.route(mixture, domain=domain):
        results[domain] = advnorm.evaluate(
            mixture, test_images, test_labels, THREAT, conditions=["clean", "pgd-50"]
        )
    print(results[domain])

# %% [markdown]
# A number of a mixture network without its branch means little. An accuracy on clean images
# from one branch and an accuracy under attack from the other belong to no network that you
# could deploy: nobody says which images are adversarial.
#
# If the attacker may choose the branch, an image counts only if it is robust on both.

# %%
verdicts = [
    result.verdicts[f"pgd-50_linf_0.15@{domain}"].robust
    for domain, result in results.items()
]
both = sum(first and second for first, second in zip(*verdicts, strict=True))
print(f"robust on the clean branch:       {sum(verdicts[0])} of {TEST}")
print(f"robust on the adversarial branch: {sum(verdicts[1])} of {TEST}")
print(f"robust on both:                   {both} of {TEST}")
assert both <= min(map(sum, verdicts))

# %% [markdown]
# To deploy one branch, collapse to it. What comes back is plain PyTorch, with the same
# outputs.

# %%
deployed = norms.collapse(mixture, "adversarial")
print(norms.count_norms(deployed))
with norms.route(mixture, domain="adversarial"):
    assert torch.allclose(deployed(test_images), mixture(test_images), atol=1e-5)

# %% [markdown]
# ## A gate instead of a choice
#
# Dual norm keeps the two sets of statistics, and shares scale and shift. At test time a
# gate weighs the two domains at each position, by how likely the features are under each.
# So there is one answer. The gate is a part of the network: the attack sees through it.
#
# The loop is the same. Only the norm changes; for comparison, so does plain batch norm.

# %%
dual, batch = norms.convert(plain, "dual"), norms.convert(plain, "batch")
for model in (dual, batch):
    train(model, attack)

# %%
for name, model in {"batch": batch, "dual": dual}.items():
    results[name] = advnorm.evaluate(
        model, test_images, test_labels, THREAT, conditions=["clean", "pgd-50"]
    )
names = {
    "batch": "batch",
    "clean": "mixture,\nclean",
    "adversarial": "mixture,\nadversarial",
    "dual": "dual",
}
answers = [[row.accuracy for row in results[name].results] for name in names]
for name, (clean, attacked) in zip(names.values(), answers, strict=True):
    title = name.replace("\n", " ")
    print(f"{title:20} clean {clean}, PGD-50 {attacked}")

# %%
# alt: Bars for each network or branch: clean accuracy, and beside it accuracy under PGD-50,
# with 95% intervals.
figure, axes = plt.subplots(figsize=(5.8, 3.4))
for place, (title, color) in enumerate([("clean", "C0"), ("PGD-50", "C1")]):
    accuracies = [each[place] for each in answers]
    heights = [x.fraction for x in accuracies]
    spread = [(x.fraction - x.interval[0], x.interval[1] - x.fraction) for x in accuracies]
    bars = [i + 0.4 * place - 0.2 for i in range(len(heights))]
    axes.bar(
        bars,
        heights,
        0.38,
        yerr=[*zip(*spread, strict=True)],
        capsize=3,
        color=color,
        hatch=("", "//")[place],
        label=title,
    )
axes.set_xticks(range(4), names.values())
axes.set(ylabel="accuracy", ylim=(0, 1.25))
axes.legend(ncols=2, loc="upper center")
plt.show()

# %% [markdown]
# Look at the two branches of the mixture first. They share all weights but those of the
# norms, and training has fitted both.
#
# Do not rank the norms by this figure. It has one run of each, and another seed moves
# every bar.
#
# ## What next?
#
# - A comparison with seeds: [which norm?](which_norm.py)
# - All modes, routes and norms: [normalization for two domains](../how-to/norms.md).
# - In a recipe, this loop is `objective.name=mixed` with `norm.name=mixture` or `dual`. For
#   dual norm it adds a loss that trains the gate (`objective.likelihood`).
