"""The page of a paper: claims on top, ours beside theirs, figures; read from records."""

import re
import sys
from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from advnorm import cli
from advnorm.papers.claims import Claim, above
from advnorm.records import (
    ClaimResult,
    Measured,
    Panel,
    Picture,
    Published,
    Reproduction,
    Series,
    holds_reproductions,
    reproductions,
)
from advnorm.report import write, write_paper_pages
from advnorm.report.paper import MOST_PANELS
from advnorm.report.reproduced_figure import _row, _scale, draw_reproduction
from advnorm.report.styles import STYLES

TABLE = Reproduction(
    artefact="here2020/table2",
    title="A <table>",
    scale="full",
    seeds=3,
    columns=("clean", "attacked"),
    rows={
        "with": {
            "clean": Measured(
                values=(90.0, 91.0, 92.0), published=Published(value=80.0, error=1.0)
            ),
            "attacked": Measured(values=(1.0, 3.0)),
        },
        "without": {"clean": Measured(values=(50.0,))},
    },
    claims=(
        ClaimResult(text="it rises", verdict="holds", why="1 against 2"),
        ClaimResult(text="it stays", verdict="holds", why="1 against 1"),
        ClaimResult(text="it falls", verdict="does not hold", why="2 against 1"),
    ),
    failed={"without, seed 1": "RuntimeError: no memory"},
    machine="4 cores of a machine",
    seconds=120,
)
FIGURE = Reproduction(
    artefact="here2020/figure10",
    title="A figure",
    scale="reduced",
    seeds=2,
    columns=("0.1", "10"),
    rows={
        "line": {
            "0.1": Measured(values=(5.0, 7.0), published=Published(value=6.5)),
            "10": Measured(values=(9.0, 9.5)),
        }
    },
    x="radius",
    y="accuracy, %",
    panels=(
        Panel(title="drawn", kind="lines", series=(Series(name="s", x=(0, 1), y=(1, 2)),)),
        Panel(
            title="seen",
            kind="pictures",
            pictures=(Picture(label="a digit", channels=(((0.0, 1.0), (0.5, 0.2)),)),),
        ),
    ),
)


@pytest.fixture
def folder(tmp_path):
    """Write two artefacts, one of them at two scales."""
    smoke = FIGURE.model_copy(update={"scale": "smoke", "title": "too small"})
    for record in (TABLE, FIGURE, smoke):
        paper, _, name = record.artefact.partition("/")
        (tmp_path / paper).mkdir(exist_ok=True)
        path = tmp_path / paper / f"{name}-{record.scale}.json"
        path.write_text(record.model_dump_json())
    return tmp_path


def page(folder):
    ((path,), damaged) = write_paper_pages(folder)
    assert not damaged
    assert path == folder / "here2020.html"
    return path.read_text()


def test_records_are_read_tables_first_at_their_largest_scale(folder):
    assert reproductions(folder) == ({"here2020": [TABLE, FIGURE]}, {})


def test_an_empty_record_of_a_larger_scale_does_not_hide_a_smaller_one(folder):
    empty = FIGURE.model_copy(update={"scale": "full", "rows": {}})
    (folder / "here2020" / "figure10-full.json").write_text(empty.model_dump_json())
    assert reproductions(folder).papers["here2020"][1].scale == "reduced"


def test_claims_stand_above_tables_and_tables_above_figures(folder):
    text = page(folder)
    places = [text.index(part) for part in ("it rises", '<h2 id="h-1"', "drawn", "seen")]
    assert places == sorted(places)
    assert "2 hold (✓), 1 does not hold (✗), 0 cannot be told (?)" in text


def test_every_claim_has_its_reason_and_no_claim_is_said(folder):
    text = page(folder)
    assert "1 against 2." in text and "2 against 1." in text
    assert text.count("no claim that can be checked automatically") == 1
    assert "2 artefacts, 2 minutes of runs on 4 cores of a machine" in text


def test_claims_at_smoke_are_not_counted(folder):
    checked = Claim("it rises", (above("no row", "0.1", 0),)).check(TABLE.rows, "smoke")
    named = {"artefact": "here2020/table3", "scale": "smoke", "claims": (checked,) * 3}
    smoke = TABLE.model_copy(update=named)
    (folder / "here2020" / "table3-smoke.json").write_text(smoke.model_dump_json())
    text = page(folder)
    assert "Of 3 claims" in text and "Scale smoke:" not in text
    for path in (folder / "here2020").glob("*-[fr]*.json"):
        path.unlink()
    assert "Scale smoke: a quick test of the pipeline; no claim is judged." in page(folder)


def test_claims_about_another_scale_are_not_counted(folder):
    path = folder / "here2020" / "figure10-reduced.json"
    missing = Claim("it is seen", (above("no row", "0.1", 0),))
    checked = tuple(
        replace(missing, scales=scales).check(FIGURE.rows, "reduced")
        for scales in (("full",), ("reduced", "full"))
    )
    assert {claim.verdict for claim in checked} == {"cannot be told"}
    path.write_text(FIGURE.model_copy(update={"claims": checked}).model_dump_json())
    text = page(folder)
    assert "Of 4 claims" in text and "1 cannot be told (?)" in text
    assert text.count("it is seen: cannot be told") == 1
    assert text.count("– <b>it is seen: not judged at this scale") == 1
    (folder / "here2020" / "table2-full.json").unlink()
    path.write_text(FIGURE.model_copy(update={"claims": checked[:1]}).model_dump_json())
    text = page(folder)
    assert "No claim can be judged at this scale." in text
    assert "Scale smoke:" not in text


def test_a_record_without_numbers_says_so(folder):
    path = folder / "here2020" / "table2-full.json"
    assert "No measurements yet." not in page(folder)
    path.write_text(TABLE.model_copy(update={"rows": {}}).model_dump_json())
    assert "No measurements yet." in page(folder)


def test_a_figure_is_drawn_and_too_many_drawings_are_left_out(folder):
    text = page(folder)
    assert "A figure. line: 0.1 6, 10 9.25" in text and text.count("<svg") == 2
    assert "more drawings" not in text
    many = tuple(FIGURE.panels[i] for i in (0, 1) for _ in range(MOST_PANELS + 2))
    record = FIGURE.model_copy(update={"panels": many})
    (folder / "here2020" / "figure10-reduced.json").write_text(record.model_dump_json())
    text = page(folder)
    assert text.count("<svg") == text.count("<img") + 1 == MOST_PANELS + 1
    assert "4 more panels are in the record only." in text


def test_numbers_stand_beside_the_published_ones(folder):
    text = page(folder)
    assert "91 ± 0.58* [80 ± 1]" in text and ">2 ± 1<" in text
    assert "without, seed 1: RuntimeError: no memory" in text
    assert "advnorm reproduce here2020/table2 --scale full --seeds 3" in text


def test_text_is_escaped_and_nothing_is_fetched(folder):
    text = page(folder)
    assert "A &lt;table&gt;" in text and "A <table>" not in text
    assert not re.findall(r"(?:src|href)=\"(?!data:|#)", text)


def test_the_same_records_give_the_same_bytes(folder):
    assert page(folder) == page(folder)


@pytest.mark.parametrize(("columns", "scale"), [(("0.1", "10"), "log"), ("12", "linear")])
def test_a_wide_range_has_a_logarithmic_axis(columns, scale):
    axes = Figure().add_subplot()
    _scale(axes, columns, {column: float(column) for column in columns})
    assert axes.get_xscale() == scale


def test_bars_are_two_standard_errors_and_the_papers_numbers_are_dotted():
    axes = Figure().add_subplot()
    _row(axes, FIGURE.rows["line"], {"0.1": 0.1, "10": 10.0}, STYLES[0])
    (bars,) = axes.collections
    ends = [segment[:, 1].tolist() for segment in bars.get_segments()]
    assert ends == [[4.0, 8.0], [8.75, 9.75]]  # errors 1 and 0.25
    theirs = axes.lines[-1]
    assert theirs.get_xydata().tolist() == [[0.1, 6.5]] and theirs.get_linestyle() == ":"


def test_words_have_places():
    words = FIGURE.model_copy(
        update={
            "columns": ("few", "many"),
            "rows": {
                "line": {"few": Measured(values=(1.0,)), "many": Measured(values=(2.0,))}
            },
        }
    )
    drawn = draw_reproduction(words, "f")
    assert "few" in drawn.svg and drawn.alt == "line: few 1, many 2"


def test_the_command_knows_a_folder_of_reproductions(folder, monkeypatch, capsys):
    assert holds_reproductions(folder) and not holds_reproductions(folder / "here2020")
    out = folder / "pages"
    monkeypatch.setattr(sys, "argv", ["advnorm", "report", str(folder), "--out", str(out)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code
    assert capsys.readouterr().out == f"wrote {out / 'here2020.html'}\n"


def edited(**changes) -> bytes:
    return TABLE.model_copy(update=changes).model_dump_json().encode()


IMPOSSIBLE = Measured(values=(50.0,), n=20).model_copy(update={"values": (500.0,)})
WHOLE = TABLE.model_dump_json().encode()
DAMAGES = {
    "cut short": (WHOLE[:500], "EOF while parsing"),
    "empty": (b"", "EOF while parsing"),
    "of other bytes": (b"\xff\xfe{}", "expected value"),
    "of another kind": (b"{}", "artefact: Field required"),
    "of a newer version": (WHOLE[:-1] + b', "more": 1}', "more: Extra inputs"),
    "of no paper": (edited(artefact="table2"), "artefact: String should match"),
    "without a column": (edited(columns=("clean",)), "of no column: attacked"),
    "without values": (WHOLE.replace(b"[50.0]", b"[]"), "without.clean.values: Tuple"),
    "beyond 100%": (
        edited(rows={"with": {"clean": IMPOSSIBLE}}),
        "no accuracies of 20 samples",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_record_is_named_and_stops_no_page(folder, monkeypatch, capsys, damage):
    (folder / "there2021").mkdir()
    other = TABLE.model_copy(update={"artefact": "there2021/table2"})
    (folder / "there2021" / "table2-full.json").write_text(other.model_dump_json())
    path = folder / "here2020" / "table2-full.json"
    content, why = DAMAGES[damage]
    assert content != WHOLE
    path.write_bytes(content)
    monkeypatch.setattr(sys, "argv", ["advnorm", "report", str(folder)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    said = capsys.readouterr()
    assert end.value.code == 1
    assert said.out.splitlines() == [
        f"wrote {folder / name}" for name in ("here2020.html", "there2021.html")
    ]
    assert said.err.startswith(f"advnorm: {path} is not the record of a reproduction (")
    assert why in said.err and "remove it and reproduce again" in said.err
    assert said.err.count("\n") == 1
    text = (folder / "here2020.html").read_text()
    assert "A figure" in text and "A &lt;table&gt;" not in text
    assert f"<b>Left out:</b> {path} is not" in text
    assert "Left out" not in (folder / "there2021.html").read_text()


def test_a_folder_in_the_place_of_a_record_stops_no_other(folder):
    path = folder / "here2020" / "table2-full.json"
    path.unlink()
    path.mkdir()
    papers, damaged = reproductions(folder)
    assert papers == {"here2020": [FIGURE]}
    ((sentence,),) = damaged.values()
    assert sentence.startswith(f"{path} cannot be read (")


def test_how_many_samples_there_are_stands_once(folder):
    assert "samples" not in section(page(folder), "table2")
    cells = {
        row: {name: cell.model_copy(update={"n": 2000}) for name, cell in own.items()}
        for row, own in TABLE.rows.items()
    }
    record = TABLE.model_copy(update={"rows": cells})
    path = folder / "here2020" / "table2-full.json"
    path.write_text(record.model_dump_json())
    text = section(page(folder), "table2")
    assert text.count("n=2000") == 1
    assert text.index("Each number is an accuracy on n=2000 samples.") < text.index("<th")
    assert '<td class="number">50<small>47.8–52.2</small></td>' in text  # Wilson, by hand
    assert "91 ± 0.58* [80 ± 1]</td>" in text, "over seeds the error is said, and no range"


def section(text: str, name: str) -> str:
    """Return the part of a page that is about one artefact."""
    return text.partition(f'<section id="{name}"')[2].partition("</section>")[0]


def test_a_papers_page_has_the_scripts_and_the_policy_of_a_report(folder, maker, tmp_path):
    run = maker.run("a")
    report = write([run], tmp_path / "r.html").read_text()
    pages = (report, page(folder))
    for part in (
        r'http-equiv="Content-Security-Policy" content="(.*?)"',
        "<script>(.*?)</script>",
    ):
        first, second = (re.search(part, text, re.DOTALL)[1] for text in pages)
        assert first == second
    assert 'class="claims sortable filterable"' in pages[1]
