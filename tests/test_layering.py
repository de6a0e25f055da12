"""The package's import arrows point one way."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "advnorm"

# Parts that know nothing of the subject: every other part may use them.
BASE = {
    *("registry", "draws", "files", "progress", "model_state", "ranks", "allocator"),
    *("text", "safe_yaml", "numbers", "labelled_data", "model_output", "significance"),
    *("t_test", "image_gradients", "matrix_products"),
    "transposed_convolution",
}

# What each part may import from the rest of the package.
MAY_IMPORT: dict[str, set[str]] = {
    "text": set(),
    "safe_yaml": {"text"},
    "numbers": {"text"},
    "registry": {"text"},
    "draws": set(),
    "significance": set(),
    "t_test": set(),
    "labelled_data": set(),
    "allocator": set(),
    "image_gradients": {"transposed_convolution"},
    "transposed_convolution": set(),
    "matrix_products": set(),
    "files": set(),
    "progress": {"text"},
    "model_state": set(),
    "model_output": set(),
    "rendezvous": set(),
    "heartbeat": set(),
    "ranks": {"rendezvous", "heartbeat", "text"},
    "sparse_balls": set(),
    "threat": BASE | {"sparse_balls"},
    "schedules": BASE,
    "records": BASE,
    "norms": BASE,
    "data": BASE,
    "recipe": {"threat", "schedules", "files", "safe_yaml", "text", "numbers"},
    "recipes": {"recipe", "registry"},
    "models": BASE | {"norms"},
    "attacks": BASE | {"threat", "sparse_balls"},
    "bounds": BASE | {"norms", "threat"},
    "folding": BASE | {"norms", "bounds"},
    "surrogates": BASE,
    "objectives": BASE | {"attacks", "bounds", "norms", "threat"},
    "gradients": BASE | {"objectives", "norms"},
    "evaluation": BASE
    | {"attacks", "bounds", "folding", "norms", "surrogates", "threat", "data", "records"},
    "diagnosis": BASE
    | {"attacks", "bounds", "evaluation", "norms", "threat", "data", "records"},
    "report": {"records", "files", "registry", "text", "numbers", "significance"},
}
MAY_IMPORT["training"] = set(MAY_IMPORT) - {"report", "recipes"}
MAY_IMPORT["runs"] = MAY_IMPORT["training"] | {"training"}
MAY_IMPORT["studies"] = {
    *("recipe", "training", "runs", "evaluation", "diagnosis", "records"),
    *("models", "objectives", "data"),
    *BASE,
}
MAY_IMPORT["papers"] = {
    *("recipe", "training", "runs", "studies", "evaluation", "diagnosis", "records"),
    *BASE,
}
EDGE = {"cli", "demo", "listing", "__init__", "__main__"}  # these may import anything


def modules():
    return sorted(ROOT.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Return the parts of the package that a file imports, also inside functions."""
    parts = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            names = [node.module or ""]
            if node.module == "advnorm":
                names = [f"advnorm.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        parts |= {name.split(".")[1] for name in names if name.startswith("advnorm.")}
    return parts


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path):
    part = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if part in EDGE:
        return
    assert part in MAY_IMPORT, f"{part} is a new part: say what it may import"
    wrong = imported(path) - MAY_IMPORT[part] - {part}
    assert not wrong, f"{part} must not import {sorted(wrong)}"


def test_the_arrows_have_no_cycle():
    done: set[str] = set()
    left = dict(MAY_IMPORT)
    while left:
        ready = [part for part, needs in left.items() if needs <= done]
        assert ready, f"a cycle among {sorted(left)}"
        done |= set(ready)
        left = {part: needs for part, needs in left.items() if part not in ready}


def test_a_wrong_arrow_is_seen(tmp_path):
    file = tmp_path / "x.py"
    file.write_text("def f():\n    from advnorm import training\n    import advnorm.cli\n")
    assert imported(file) == {"training", "cli"}
