"""Every tutorial runs at a small scale, with its outputs and figures; a failure is named."""

import re
import sys

import pytest
from page_blocks import ROOT

from advnorm.files import locked

sys.path.insert(0, str(ROOT / "docs" / "tools"))

import run_tutorials

TUTORIALS = sorted(path.stem for path in run_tutorials.TUTORIALS.glob("*.py"))
IMAGE = re.compile(r"^```\{image\} (\S+)\n:alt: (.+)\n:class: only-(light|dark)$", re.M)

FINE = """\
# %% [markdown]
# # A title
#
# Read [on](which_norm.py), or of [norms](../how-to/norms.md).

# %%
import os
from matplotlib import pyplot as plt
print("printed")
os.environ["ADVNORM_TUTORIALS"]

# %%
# alt: A line that rises
# from 0 to 1.
plt.plot([0, 1])
plt.show()
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Return a small tutorial, and the folder of its page."""
    monkeypatch.setenv("ADVNORM_TUTORIALS", "small")
    path = tmp_path / "some.py"
    path.write_text(FINE)
    return path, tmp_path / "out"


def run(path, out):
    return run_tutorials.main([str(path), "--out", str(out)])


@pytest.fixture(scope="module")
def page_folder(shared_folder):
    """Return a function that gives the folder in which a tutorial's page is current.

    That is where `make docs` left it, at either scale. If it is outdated or missing, the
    tutorial runs at the small scale; one of several processes runs it.
    """

    def folder(name):
        made, script = run_tutorials.TUTORIALS / "generated", run_tutorials.TUTORIALS
        with pytest.MonkeyPatch.context() as patch:
            for scale in ("full", "small"):
                patch.setenv("ADVNORM_TUTORIALS", scale)
                if run_tutorials.is_current(script / f"{name}.py", made):
                    return made
            out = shared_folder(f"tutorial-{name}")
            with locked(out / "lock", wait=True):
                assert run_tutorials.main([name, "--out", str(out), "--jobs", "1"]) == 0
        return out

    return folder


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_runs_and_has_outputs_and_figures(page_folder, name):
    pages = page_folder(name)
    page = (pages / f"{name}.md").read_text()
    assert "Traceback" not in page
    assert page.splitlines()[2].startswith("# ")
    assert page.count("```text\n") >= 3
    images = IMAGE.findall(page)
    assert {variant for *_, variant in images} == {"light", "dark"}
    for file, alt, variant in images:
        drawn = (pages / file).read_text()
        replaced = run_tutorials.VARIANTS[variant]
        assert replaced[run_tutorials.INK] in drawn
        assert not [colour for colour in replaced if colour in drawn]
        assert len(alt) > 40
    assert (pages / f"{name}.py").read_text() == (
        run_tutorials.TUTORIALS / f"{name}.py"
    ).read_text()


def test_there_are_six_tutorials():
    assert len(TUTORIALS) == 6


@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_has_the_percent_format_and_leads_somewhere(name):
    path = run_tutorials.TUTORIALS / f"{name}.py"
    cells = run_tutorials.cells_of(path.read_text())
    assert path.read_text().startswith("# %% [markdown]\n# # ")
    assert {cell.kind for cell in cells} == {"markdown", "code"}
    for cell in cells:
        is_prose = cell.text.startswith(("# ", "## ")) and cell.kind == "code"
        assert cell.text and (not is_prose or cell.text.startswith("# alt: "))
    for target in re.findall(r"\]\((\w+\.py)\)", path.read_text()):
        assert path.with_name(target).exists()


def test_a_page_has_its_cells_what_they_printed_their_value_and_figures(script):
    path, out = script
    assert run(path, out) == 0
    page = (out / "some.md").read_text()
    assert (
        "\n# A title\n\nRead [on](which_norm.md), or of [norms](/how-to/norms.md)." in page
    )
    assert "```text\nprinted\n'small'\n```" in page
    assert IMAGE.findall(page) == [
        (f"some-3-1-{variant}.svg", "A line that rises from 0 to 1.", variant)
        for variant in ("light", "dark")
    ]
    assert "# alt" not in page and "plt.plot([0, 1])" in page
    assert all((out / file).exists() for file, *_ in IMAGE.findall(page))


def test_a_failing_cell_is_named_and_leaves_no_page(script, capfd):
    path, out = script
    assert run(path, out) == 0
    path.write_text(FINE.replace('print("printed")', "1 / 0"))
    assert run(path, out) == 1
    error = capfd.readouterr().err
    assert f"{path}:7: cell 2 failed" in error
    assert f'File "{path}", line 9' in error and "ZeroDivisionError" in error
    assert not (out / "some.md").exists() and not [*out.glob("*.svg")]


def test_a_warning_and_a_figure_without_a_description_fail(script, capfd):
    path, out = script
    path.write_text(FINE.replace("# from 0", "import warnings; warnings.warn('no')\n# 0"))
    assert run(path, out) == 1
    assert "cell 3 failed" in (error := capfd.readouterr().err) and "UserWarning" in error
    path.write_text(FINE.replace("# alt: A line", "# A line"))
    assert run(path, out) == 1
    assert "cell 3 failed" in (error := capfd.readouterr().err) and "describe it" in error


def test_a_page_is_made_anew_only_after_a_change(script, monkeypatch):
    path, out = script
    assert run(path, out) == 0
    before = (out / "some.md").stat().st_mtime_ns
    assert run(path, out) == 0
    assert (out / "some.md").stat().st_mtime_ns == before
    assert run_tutorials.is_current(path, out)
    monkeypatch.setenv("ADVNORM_TUTORIALS", "full")
    assert not run_tutorials.is_current(path, out)
    assert run(path, out) == 0
    assert "'full'" in (out / "some.md").read_text()
    path.write_text(FINE.replace("printed", "changed"))
    assert run(path, out) == 0
    assert "changed" in (out / "some.md").read_text()


def test_a_tutorial_leaves_no_files_behind(script, tmp_path, monkeypatch):
    path, out = script
    monkeypatch.chdir(tmp_path)
    path.write_text(FINE.replace("print(", "open('left', 'w').close(); print("))
    assert run(path, out) == 0
    assert not [*ROOT.rglob("left"), *tmp_path.rglob("left")]
