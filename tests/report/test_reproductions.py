"""A reproduced table in text: as the paper has it, or turned where it is too wide."""

import pytest

from advnorm.records import Measured, Published, Reproduction
from advnorm.report.reproductions import build_table, reproduction_text
from advnorm.report.terminal_table import WIDTH


def record(rows: dict[str, dict[str, Measured]], **more) -> Reproduction:
    return Reproduction(
        artefact="here/table1",
        title="Tiny",
        scale="smoke",
        seeds=1,
        columns=tuple(dict.fromkeys(column for cells in rows.values() for column in cells)),
        rows=rows,
        **more,
    )


def lines(columns: int) -> list[list[str]]:
    cells = {f"c{number}": Measured(values=(number,)) for number in range(columns)}
    rows = {"one": cells, "two": {"c1": Measured(values=(7.0,))}}
    table = reproduction_text(record(rows)).splitlines()[3:-2]
    return [line.split() for line in table]


@pytest.mark.parametrize("columns", [2, 8])
def test_a_table_has_the_rows_of_the_paper(columns):
    head, one, two = lines(columns)
    assert head == [f"c{number}" for number in range(columns)]
    assert one == ["one", *map(str, range(columns))]
    assert two[:3] == ["two", "-", "7"]


def test_a_table_too_wide_for_a_terminal_is_turned():
    head, *body = lines(9)
    assert head == ["one", "two"]
    assert body[1] == ["c1", "1", "7"] and body[8] == ["c8", "8", "-"]


def counted(*counts: tuple[int | None, ...]) -> Reproduction:
    """Return a table of two seeds with so many samples in its cells, row by row."""
    return record(
        {
            name: {
                column: Measured(values=(40.0, 60.0), n=n)
                for column, n in zip("xyz", own, strict=False)
            }
            for name, own in zip("abc", counts, strict=False)
        }
    )


@pytest.mark.parametrize(
    ("counts", "caption", "columns", "rows", "cell"),
    [
        ([(20, 20), (20, 20)], "n=20 samples", ("x", "y"), ["a", "b"], ""),
        ([(20, 20), (20,)], "n=20 samples", ("x", "y"), ["a", "b"], ""),
        ([(None, None)], "", ("x", "y"), ["a"], ""),
        ([(20, None), (20, None)], "", ("x (n=20)", "y"), ["a", "b"], ""),
        ([(20, 30), (20, 30)], "", ("x (n=20)", "y (n=30)"), ["a", "b"], ""),
        ([(20, 20), (None, None)], "", ("x", "y"), ["a (n=20)", "b"], ""),
        ([(20, None), (None, None)], "", ("x", "y"), ["a", "b"], "n=20"),
        ([(20, 30), (30, 20)], "", ("x", "y"), ["a", "b"], "n=20"),
    ],
    ids=str,
)
def test_samples_are_said_where_they_say_the_most(counts, caption, columns, rows, cell):
    table = build_table(counted(*counts))
    assert (caption in table.caption) if caption else not table.caption
    assert table.columns == columns
    assert [row for row, _ in table.rows] == rows
    assert table.rows[0][1][0] == ("50 ± 10", "", cell)


def test_a_cell_that_is_missing_stays_so():
    table = build_table(counted((20, 20), (20,)))
    assert table.rows[1][1][1] is None


def test_one_seed_has_the_interval_of_its_samples():
    """9 of 10: 59.6 to 98.2 (Wilson, 1927); an angle has none."""
    theirs = Published(value=95.0, error=1.0)
    cells = {
        "test": Measured(values=(90.0,), n=10, published=theirs),
        "angle": Measured(values=(45.0,)),
    }
    text = reproduction_text(record({"one": cells})).splitlines()
    assert text[3] == "  A range is the 95% interval of one seed, over its samples."
    assert text[5].split() == ["test", "(n=10)", "angle"]
    assert text[6] == "  one  90 (59.6–98.2) [95 ± 1]  45"


def test_a_number_of_no_samples_has_no_interval():
    assert Measured(values=(float("nan"),), n=0).interval is None


def test_columns_that_do_not_fit_go_below():
    cells = {name * 30: Measured(values=(number,)) for number, name in enumerate("pqrs")}
    text = reproduction_text(record({"one": cells, "two": cells}))
    table = text.splitlines()[3:-2]
    assert [line.split() for line in table] == [
        ["p" * 30, "q" * 30, "r" * 30],
        ["one", "0", "1", "2"],
        ["two", "0", "1", "2"],
        [],
        ["s" * 30],
        ["one", "3"],
        ["two", "3"],
    ]
    assert max(map(len, table)) <= WIDTH + 2
