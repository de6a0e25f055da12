# %% [markdown]
# # Which norm? A study
#
# Several norms, several seeds, one question: which should you choose, and how sure is that?
# `advnorm.study` trains and evaluates all combinations, compares them, and answers. In this
# tutorial you
#
# - ask for the cost before anything runs,
# - run a study, and read its answer,
# - read the table and the comparisons behind it,
# - look for rows that no other row beats.
#
# How long it ran, the foot of its page says.

# %%
import os
import tempfile
from pathlib import Path
from textwrap import fill

from matplotlib import pyplot as plt

import advnorm
from advnorm import recipes
from advnorm.recipe import (
    Cosine,
    EvaluationSpec,
    EvaluationThreatSpec,
    ObjectiveSpec,
    OptimizerSpec,
)
from advnorm.report import study_text
from advnorm.studies import cost_text

SMALL = os.environ.get("ADVNORM_TUTORIALS") == "small"  # a quick run, for tests
EPOCHS, SEEDS = (1, 1) if SMALL else (6, 3)
folder = Path(tempfile.mkdtemp())  # or any folder of yours

# %% [markdown]
# ## The question
#
# A study needs a recipe, which is what all runs have in common, and the settings to
# compare. Any key of a recipe can be compared. Here it is the norm.
#
# The recipe trains on clean and adversarial images at once, because mixture and dual norm
# need both domains. We shorten it: fewer epochs, and one attack at one radius.

# %%
recipe = recipes.find("digits.pgd").replace(
    objective=ObjectiveSpec(name="mixed_kl"),
    epochs=EPOCHS,
    optimizer=OptimizerSpec(schedule=Cosine(end=EPOCHS)),
    evaluation=EvaluationSpec(
        conditions=("clean", "pgd-50x2"), threat=EvaluationThreatSpec(eps=(0.15,))
    ),
)
over = {"norm.name": ["batch", "none", "mixture", "dual"]}
print(cost_text(recipe, over, SEEDS))

# %% [markdown]
# Decide on the question now. A comparison that is chosen after a look at the results is not
# the test that it pretends to be.
#
# ## Run it
#
# Three seeds are the fewest that decide anything. A study that was stopped goes on where it
# was: call it again with the same folder. More seeds or more values are added to what is
# there.

# %%
study = advnorm.study(recipe, over, seeds=SEEDS, out=folder)
for sentence in study.answer:
    print(fill(sentence, 76))

# %% [markdown]
# The first sentence says what to choose. The second says what that choice beats, and what
# it cannot be told apart from. Read both. The best of several rows is the best by luck too,
# and only the second sentence takes that into account.
#
# ## The table

# %%
for line in study_text(study).splitlines()[len(study.answer) + 1 :]:
    if not line:
        break
    print(line)

# %% [markdown]
# The most robust row comes first, and `*` marks the Pareto front. Numbers are means over
# seeds with their 95% intervals.
#
# - `clean` and `robust` are in percent. Robust means: under every attack of the evaluation.
# - The false-robustness gap is the accuracy under the short attack of validation minus the
#   robust accuracy. A large gap is a warning.
# - Time depends on what else the machine does. Memory is counted, not measured.
#
# ## The comparisons
#
# Two rows are compared seed by seed, with a paired t-test. The p-values of all pairs are
# corrected together (Holm). So the chance that the study finds any difference where there
# is none is at most 5%.

# %%
for pair in study.comparisons:
    verdict = "decided" if pair.decided else "open"
    print(
        f"{pair.first:8} - {pair.second:8} {pair.difference:+5.1f} points, "
        f"95% [{pair.low:+5.1f}, {pair.high:+5.1f}], p {pair.p:.3f}: {verdict}"
    )
assert all(0 <= pair.p <= 1 for pair in study.comparisons)
assert len(study.comparisons) == (0 if SMALL else 6)

# %% [markdown]
# An interval that leaves out zero may still be `open`: it belongs to one pair alone, and
# the verdict to all of them. With three seeds, only large and steady differences can be
# decided. `open` does not mean equal. The interval says how large the difference may be.
#
# More rows make more pairs, and each pair harder to decide. Ask narrow questions.
#
# ## The picture

# %%
# alt: Clean accuracy across and robust accuracy upwards, a marker with error bars for each
# norm. Rings mark the norms of the Pareto front.
figure, axes = plt.subplots()
for number, (label, row) in enumerate(study.rows.items()):
    clean, robust = row.numbers["clean"], row.numbers[study.headline]
    axes.errorbar(
        clean.mean,
        robust.mean,
        xerr=[[clean.mean - clean.low], [clean.high - clean.mean]],
        yerr=[[robust.mean - robust.low], [robust.high - robust.mean]],
        fmt="osD^"[number],
        markersize=8,
        capsize=4,
        label=label,
    )
    if label in study.pareto:
        color = axes.lines[-1].get_color()
        axes.plot(
            clean.mean, robust.mean, "o", markersize=17, fillstyle="none", color=color
        )
axes.set(xlabel="clean accuracy, %", ylabel=f"robust accuracy, % ({study.threat})")
axes.legend()
plt.show()

# %% [markdown]
# A ring marks the Pareto front: no other row is better in one number and at least as good
# in the other. It is made of means. Where error bars overlap, the front could be another
# one with other seeds.

# %%
assert study.choice in study.pareto

# %% [markdown]
# ## How far does the answer reach?
#
# As far as the study: this network, these data, this radius, this many epochs. A norm that
# learns faster wins a short race. Ask again at the length and the scale of your own work.
# [A study of nine norms](../how-to/study.md) on larger data is described there.
#
# ## What next?
#
# - The same from the command line, with a page that you can open: `advnorm study digits.pgd
#   --over norm.name=batch,none --seeds 3 --out studies/norms`.
# - With your own model and data: `advnorm.study(..., model=..., data=...)`.
