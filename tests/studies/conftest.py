"""Lets the processes that tests start find what they are to do."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
