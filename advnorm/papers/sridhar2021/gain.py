"""What batch norm adds to a row, as parts of claims."""

from collections.abc import Sequence

from advnorm.papers.claims import Part, more

TableCell = tuple[str, str]
"""Row and column."""


def gain(row: str, column: str) -> tuple[TableCell, TableCell]:
    """Return a number with and without batch norm."""
    return (f"{row}, BN", column), (row, column)


def improves(rows: Sequence[str], columns: Sequence[str]) -> tuple[Part, ...]:
    """Claim that batch norm improves each number."""
    return tuple(more(*gain(row, column)) for row in rows for column in columns)
