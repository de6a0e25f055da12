"""A reproduced table in text: as the paper has it, or turned where it is too wide."""

import pytest

from advnorm.records import Measured, Reproduction
from advnorm.report.reproductions import reproduction_text


def lines(columns: int) -> list[list[str]]:
    cells = {f"c{number}": Measured(values=(number,)) for number in range(columns)}
    record = Reproduction(
        artefact="here/table1",
        title="Tiny",
        scale="smoke",
        seeds=1,
        columns=tuple(cells),
        rows={"one": cells, "two": {"c1": Measured(values=(7.0,))}},
    )
    table = reproduction_text(record).splitlines()[3:-2]
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
