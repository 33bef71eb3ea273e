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
        """A fault at a line, or where a passage comes next."""
        self.faults.add(self.file, where if isinstance(where, int) else self.next_line(where), message)

    def next_line(self, passage: str) -> int:
        """The line of the next `passage`, after the one that the last such call found; 0 if it is written otherwise.

        A passage may be broken over lines; one that has a class (`[10 s]{.setting}`) is passed over.
        """
        begin, end = r"\b" * passage[:1].isalnum(), r"(?!\w)" * passage.startswith(("@", "#"))
        words = r"\s+(?:>\s+)?".join(map(re.escape, passage.split()))
        pattern = re.compile(rf"{begin}{words}{end}(?!\]\{{\.)")
        found = pattern.search(self.text, self._ends.get(passage, 0)) or pattern.search(self.text)
        if found is None:
            return 0
        self._ends[passage] = found.end()
        return self.text.count("\n", 0, found.start()) + 1
