"""The planted test as a check: whether attacks find what is surely there."""

from advnorm.evaluation.checks.context import CHECKS, PGD, AuditContext, Finding, NotRun
from advnorm.evaluation.planted import CHECK, MISSED, SAMPLES, planted_test
from advnorm.evaluation.planting import FULL


@CHECKS.register(CHECK)
def planted_examples(context: AuditContext) -> Finding:
    """Ask whether the attacks find adversarial examples that were planted for them.

    The binarization test (Zimmermann et al., NeurIPS 2022), with the paper's numbers of
    points, at up to 32 samples that the suite leaves robust. A pass of less than 95% is
    flagged. Where random sampling finds as much, a pass says little.
    """
    left = context.robust_to_suite.nonzero().squeeze(1)[:SAMPLES]
    if not len(left):
        raise NotRun("no sample is robust, so there is nothing to doubt")
    result = planted_test(
        context.model,
        context.images[left],
        context.labels[left],
        context.threat,
        [PGD, *context.suite],
        samples=context.samples[left],
        points=FULL,
        batch_size=context.batch_size,
        seed=context.seed,
    )
    if result.reason or not result.success.n:
        raise NotRun(str(result).removeprefix("planted test: not run, "))
    return Finding(result.flagged, MISSED, result.numbers)
