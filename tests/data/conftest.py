"""The tests of data sets share a module that writes small ones."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # data_files
