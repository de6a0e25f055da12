"""The first page of docs/results/README.md: what holds, what does not, what is open.

Sentences are written by hand, five a paper, the first one counted. Their numbers are read
from the records: ``{table1-full: GD, angle}`` is the column ``angle`` of the row ``GD``.
Each claim that a sentence is about is named with the verdict it relies on; where the record
says otherwise the page is refused, and the sentence has to be written anew.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from advnorm.papers import ARTEFACTS
from advnorm.papers.artefact import captions
from advnorm.records import Reproduction, Verdict

_PLACE = re.compile(r"\{([a-z]+\d+-[a-z]+): (.+?), ([^,{}]+)\}")


class Relied(NamedTuple):
    """A claim's verdict that a sentence relies on."""

    record: str
    """Such as ``table1-full``."""
    begins: str
    """How the claim begins."""
    verdict: Verdict


class Page(NamedTuple):
    """A paper's four sentences, and what they rely on."""

    sentences: tuple[str, str, str, str]
    relied: tuple[Relied, ...]


def _page(sentences: tuple[str, str, str, str], *relied: tuple[str, str, Verdict]) -> Page:
    return Page(sentences, tuple(Relied(*each) for each in relied))


PAGES: dict[str, Page] = {
    "galloway2019": _page(
        (
            "**Holds** at the paper's settings: on MNIST 3 against 7 batch norm turns a "
            "linear boundary {table1-full: BNGD affine F, angle} degrees away from the "
            "nearest centroid's (descent alone {table1-full: GD, angle}) and leaves "
            "{table1-full: BNGD affine F, FGSM}% under FGSM of {table1-full: GD, "
            "FGSM}%.",
            "A perceptron on 28 x 28 pixels keeps {table6-full: 28, eps 0.1}% under BIM "
            "without and {table6-full: 28, batch norm, eps 0.1}% with batch norm; a "
            "larger constant c helps ({figure3-full: BNGD c=1, FGSM}% under FGSM at c = "
            "1), weight decay more ({figure3-full: GD-L2 1, FGSM}%).",
            "**Does not hold**: normalizing each image does not turn the boundary back "
            "({figure10-full: GD, per-image, angle} degrees, {figure10-full: GD, angle} "
            "without), batch statistics at test time do not either ({figure10-full: "
            "BNGD, batch statistics, angle}), and at rate 0.01 the network for two "
            "circles trains with batch norm too ({figure9-full: rate 0.01, batch norm, "
            "training}% of its points).",
            "**Open**: what it says of VGGs and residual networks; at reduced, with "
            "4,000 images and 15 epochs, no claim of Tables 2 to 4 is decided, and "
            "ImageNet and all of CIFAR-10 were not trained on.",
        ),
        ("table1-full", "FGSM accuracy of BNGD", "holds"),
        ("table1-full", "batch norm tilts the boundary", "holds"),
        ("table6-full", "batch norm costs about 40 points", "holds"),
        ("figure3-full", "weight decay reaches more robustness", "holds"),
        ("figure10-full", "with per-image normalization", "does not hold"),
        ("figure10-full", "without tracking, the angle", "does not hold"),
        ("figure9-full", "at rate 0.01 the network trains", "does not hold"),
    ),
    "xie2020": _page(
        (
            "**Holds**, **does not hold**: nothing is decided with the present "
            "settings, of which no record is kept yet.",
            "An earlier setting (5,000 images, 300 test images) could not tell training "
            "with clean images from training without them, and all its curves were flat "
            "after 100 steps of PGD: [xie2020](xie2020.md).",
            "The paper itself expects small data sets to be exceptions, so how large "
            "the gap is can be told at `full` alone.",
            "**Open**: all of it; `full` is ResNet-152 and deeper on ImageNet, by the "
            "paper on 128 GPUs.",
        ),
    ),
    "sridhar2021": _page(
        (
            "**Holds** at reduced, for PGD-AT: batch norm lowers the norm of the "
            "gradient ({figure1-reduced: PGD-AT, gradient norm} to {figure1-reduced: "
            "PGD-AT, BN, gradient norm}), the largest eigenvalue of the Hessian "
            "({figure1-reduced: PGD-AT, Hessian} to {figure1-reduced: PGD-AT, BN, "
            "Hessian}) and the spread of the deepest moments.",
            "Under PGD every size of CNN has more with batch norm (the large one "
            "{table5-reduced: LG-CNN, BN, PGD}% and {table5-reduced: LG-CNN, PGD}%), "
            "which three seeds do not decide for all sizes and both accuracies "
            "together.",
            "**Does not hold**: no claim is refuted.",
            "**Open**: whether the gain grows with the radius, PGD-AT without a rising "
            "radius, all of IBP and CROWN-IBP, residual networks with borrowed moments, "
            "and everything at `full`.",
        ),
        ("figure1-reduced", "PGD-AT: batch norm lowers the norm", "holds"),
        ("figure1-reduced", "PGD-AT: batch norm lowers the relative", "holds"),
        ("table5-reduced", "batch norm improves every size", "cannot be told"),
    ),
    "sitawarin2021": _page(
        (
            "**Holds** at reduced, on MNIST: as the weight of the clean loss goes from "
            "0.25 to 0.5 the gap from the training attack to a strong suite grows from "
            "{figure5-reduced: PGD - AA, 0.25} to {figure5-reduced: PGD - AA, 0.5} "
            "points (five seeds), and at 0.5 it is larger than adversarial training's "
            "({table2-reduced: AT, BN, PGD - AA}, three seeds).",
            "With a divergence of weight 1 clean accuracy is above that of TRADES "
            "({table3-reduced: MAT-Cat-0.5 + KL-1, Clean}% and "
            "{table3-reduced: TRADES-Cat-6, Clean}%).",
            "**Does not hold**: with weight 4 it is not above adversarial training "
            "({table3-reduced: MAT-Cat-0.5 + KL-4, Clean}% and {table3-reduced: AT, "
            "Clean}%), and clean and attacked features are not well apart in the middle "
            "and the last norm ({figure1-reduced: MAT-Cat-0.5, middle} and "
            "{figure1-reduced: MAT-Cat-0.5, last} spreads).",
            "**Open**: one method's accuracy under the strong suite beside another's, "
            "where seeds scatter by 2 to 10 points, dual batch norm, and everything at "
            "`full`.",
        ),
        ("figure5-reduced", "the gap from PGD to AutoAttack grows", "holds"),
        (
            "table2-reduced",
            "MAT-Cat-0.5, BN loses more from PGD to AutoAttack than AT",
            "holds",
        ),
        ("table3-reduced", "MAT-Cat-0.5 + KL-1 has a higher clean", "holds"),
        ("table3-reduced", "MAT-Cat-0.5 + KL-4 has a higher clean", "does not hold"),
        ("figure1-reduced", "clean and PGD features are well apart", "does not hold"),
    ),
    "apart2022": _page(
        (
            "**Holds**, **does not hold**: nothing is decided with the present "
            "settings, of which no record is kept yet.",
            "An earlier setting (1,000 images) had the paper's order of random and "
            "adversarial perturbations of the statistics: [apart2022](apart2022.md).",
            "It told no two methods of training apart in accuracy; with 5,000 images a "
            "look has APART two to three points above standard training and SAM.",
            "**Open**: all of it; ImageNet's claims can be told at `full` alone.",
        ),
    ),
}


def summary_page(records: Mapping[str, Sequence[Reproduction]]) -> str:
    """Return the page from the judged records of each artefact."""
    return "\n\n".join(_section(paper, records) for paper in PAGES)


def _section(paper: str, records: Mapping[str, Sequence[Reproduction]]) -> str:
    by_name = {
        f"{record.artefact.partition('/')[2]}-{record.scale}": record
        for name, each in records.items()
        if name.startswith(f"{paper}/")
        for record in each
    }
    page = PAGES[paper]
    for relied in page.relied:
        _check(paper, relied, by_name)
    sentences = [
        _PLACE.sub(lambda m: _number(by_name, *m.groups()), text) for text in page[0]
    ]
    return f"## {paper}\n\n" + " ".join([_counted(paper, records), *sentences])


def _counted(paper: str, records: Mapping[str, Sequence[Reproduction]]) -> str:
    """Return the first sentence: how claims are judged, and what is missing."""
    names = [name for name in captions() if name.startswith(paper) and name in ARTEFACTS]
    verdicts = Counter(
        claim.verdict
        for name in names
        for record in records.get(name, ())
        for claim in record.claims
        if claim.applicable
    )
    missing = sum(not records.get(name) for name in names)
    if not verdicts:
        return f"None of its {len(names)} tables and figures is measured."
    return (
        f"Of {sum(verdicts.values())} judged claims {verdicts['holds']} hold, "
        f"{verdicts['does not hold']} do not hold and {verdicts['cannot be told']} cannot "
        f"be told; {missing} of {len(names)} tables and figures are not measured."
    )


def _check(paper: str, relied: Relied, records: Mapping[str, Reproduction]) -> None:
    """Refuse a sentence that a record contradicts."""
    claims = records[relied.record].claims if relied.record in records else ()
    verdicts = [claim.verdict for claim in claims if claim.text.startswith(relied.begins)]
    if verdicts != [relied.verdict]:
        raise ValueError(
            f"{paper}/{relied.record}: a sentence of benchmarks/result_summary.py relies "
            f"on {relied.begins!r} being {relied.verdict!r}, and the record says "
            f"{verdicts or 'nothing'}: write the sentence anew"
        )


def _number(records: Mapping[str, Reproduction], name: str, row: str, column: str) -> str:
    return str(records[name].rows[row][column])
