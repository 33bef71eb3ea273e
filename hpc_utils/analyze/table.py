"""What a chapter needs to know of a table: its name, its caption, and what to run if it is empty. It travels with the frame."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

KEY = "table"  # of a frame's `attrs`


@dataclass(frozen=True)
class Table:
    """What `publish.chapter` exports and shows.

    Attributes:
        name: without the chapter's label. caption: one sentence.
        measure: the column that is cited where none is named.
        columns: those shown; by default all. An interval is shown with its column.
        missing: what to measure, in words or as a command, if it is empty.
        span: what its intervals are, where they are no 95 % intervals.
    """

    name: str
    caption: str
    measure: str = ""
    columns: tuple[str, ...] = ()
    missing: str = ""
    span: str = ""


def tabled(
    name: str, caption: str, columns: str = "", **details: str
) -> Callable[[Callable[..., pd.DataFrame]], Callable[..., pd.DataFrame]]:
    """An analysis whose frame carries its `Table`; `columns`: names separated by spaces."""
    description = Table(name, caption, columns=tuple(columns.split()), **details)

    def decorate(analyze: Callable[..., pd.DataFrame]) -> Callable[..., pd.DataFrame]:
        @functools.wraps(analyze)
        def described(*arguments: object, **options: object) -> pd.DataFrame:
            table = analyze(*arguments, **options)
            table.attrs[KEY] = description
            return table

        return described

    return decorate
