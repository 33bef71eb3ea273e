"""What a source becomes once everything is in its place, and what it may refer to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .drawings import Drawing
from .number_lint import Allowed
from .sets import Found, Sets
from .source import Source
from .tree import Node


@dataclass
class Filled:
    """A document ready for a writer.

    Its nodes are pandoc's, and ours: Value {text, full}, Refer {key}, Quote {keys, prose}, Drawing {drawing}.
    """

    source: Source
    words: dict[str, list[Node]] = field(default_factory=dict)
    body: list[Node] = field(default_factory=list)
    values: dict[str, Found] = field(default_factory=dict)  # by full name, in order of appearance
    drawings: list[Drawing] = field(default_factory=list)
    said: list[Allowed] = field(default_factory=list)
    cited: set[str] = field(default_factory=set)
    claims: set[str] = field(default_factory=set)

    @property
    def used(self) -> list[Found]:
        """Everything from the result sets that stands in it."""
        return [*self.values.values(), *(one.found for one in self.drawings if one.found)]


@dataclass(frozen=True)
class Around:
    """What a source may refer to. `claims`: {name: its sentence and verdict in Markdown}, in their order."""

    sets: Sets
    claims: Mapping[str, str]
    rests_on: Mapping[str, tuple[str, ...]]
    citations: frozenset[str]
    folder: Path  # of the source: a picture of one's own lies beside it
