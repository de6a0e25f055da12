"""Run the page's scripts on node, as they are on the page but for the last, which starts."""

import json
import shutil
import subprocess
from typing import Any

import pytest

from advnorm.report.scripts import ALL, FOLDER

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")


def evaluate(expression: str, values: Any = None) -> Any:
    """Return the value of a JavaScript expression, in which ``values`` is a value too."""
    assert NODE is not None
    files = "\n".join((FOLDER / f"{name}.js").read_text() for name in ALL[:-1])
    code = (
        '"use strict";\n'
        'const values = JSON.parse(require("fs").readFileSync(0, "utf8"));\n'
        f"{files}\nprocess.stdout.write(JSON.stringify({expression}));\n"
    )
    command = [NODE, "-e", code]
    text = json.dumps(values)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
