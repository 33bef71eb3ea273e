"""What is wrong with documents: collected, so that all of it is said at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, order=True)
class Fault:
    """One thing to mend: where it stands (`paper/paper.md`, 12), what is wrong, and what to do."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}"


@dataclass
class Faults:
    """The faults found so far in files called by their path from the project's root."""

    found: list[Fault] = field(default_factory=list)

    def add(self, file: str, line: int, message: str) -> None:
        """Note a fault once; line 0 is the file as a whole."""
        fault = Fault(file, line, message)
        if fault not in self.found:
            self.found.append(fault)

    def __bool__(self) -> bool:
        return bool(self.found)


class DocumentError(ValueError):
    """Documents that cannot be built: every fault on a line of its own."""

    exit_code = 2

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = sorted(faults)
        count = f"{len(self.faults)} fault{'s' * (len(self.faults) != 1)}"
        super().__init__("\n".join([f"{count} in the documents", *(f"  {fault}" for fault in self.faults)]))
