"""``python -m advnorm``."""

from advnorm.cli import main

main()
