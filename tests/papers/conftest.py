"""Lets tests share the recipe of a tiny run."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
