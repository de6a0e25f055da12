"""Every norm, trained with PGD and with mixed_kl on all MNIST images; resumable.

    ADVNORM_DATA=FOLDER python benchmarks/norm_study.py --out studies/mnist [--on 2]

The study behind docs/results/norms-mnist.md. `--page` writes that page's table and answer
from the study.json of a finished study instead of running anything.
"""
