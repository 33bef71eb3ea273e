"""Faults of documents, collected so that one build reports all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Fault:
    """A fault in `file` (its path from the project's root) at `line`; 0 is the whole file."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}"


class Faults(list[Fault]):
    """The faults found so far, each once."""

    def add(self, file: str, line: int, message: str) -> None:
        fault = Fault(file, line, message)
        if fault not in self:
            self.append(fault)


class DocumentError(ValueError):
    """Documents that cannot be built: one fault a line."""

    exit_code = 2

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = sorted(faults)
        super().__init__(
            "\n".join([f"{len(self.faults)} faults in the documents", *(f"  {one}" for one in self.faults)])
        )
