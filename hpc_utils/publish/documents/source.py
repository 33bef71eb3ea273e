"""The text of a source, in which the lines of faults are looked up: pandoc's tree of Markdown does not have them."""

from __future__ import annotations

import re

from .faults import Faults


class Source:
    """`text` of `file`; faults are added to `faults`."""

    def __init__(self, text: str, file: str, faults: Faults) -> None:
        self.text, self.file, self.faults = text, file, faults
        self._ends: dict[str, int] = {}

    def fault(self, where: str | int, message: str) -> None:
        """A fault at a line, or at the first line with a passage."""
        self.faults.add(self.file, where if isinstance(where, int) else self.line(where), message)

    def line(self, passage: str, after: int = 0, ends: str = "") -> int:
        """The line of `passage`, preferably behind `after`; 0 if it is written otherwise. `ends`: a pattern that must follow."""
        found = self.find(passage, after, ends) or self.find(passage, 0, ends)
        return self.line_at(found.start()) if found else 0

    def next_line(self, passage: str) -> int:
        """The line at which `passage` comes next, after the one found by the last such call; 0 if it does not."""
        found = self.find(passage, self._ends.get(passage, 0))
        self._ends[passage] = found.end() if found else 0
        return self.line_at(found.start()) if found else 0

    def find(self, passage: str, after: int = 0, ends: str = "") -> re.Match[str] | None:
        """Where `passage` stands, possibly broken over lines."""
        words = r"\s+(?:>\s+)?".join(map(re.escape, passage.split()))
        return re.compile(words + (r"(?!\w)" if words[-1:].isalnum() else "") + ends).search(self.text, after)

    def line_at(self, place: int) -> int:
        return self.text.count("\n", 0, place) + 1
