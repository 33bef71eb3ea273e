"""All documents of `paper/paper.toml`: checked together, then built one by one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from . import claims, fonts, outputs, project, source, typst
from .drawings import too_wide
from .faults import DocumentError, Fault, Faults
from .fill import fill
from .filled import Around, Filled
from .project import DocumentEntry
from .workshop import Workshop

LETTERS = {"column": 72, "wide": 150}  # of a table's row, side by side, that a page has room for


def build(
    workshop: Workshop,
    names: Sequence[str] = (),
    *,
    check: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> list[Path]:
    """Build the documents `names`, by default all, and numbers.pdf; returns what was written.

    A document with a fault leaves no PDF, also none of a former build; the others are built. `check` writes nothing.

    Raises:
        project.ProjectError: no such document.
        DocumentError: what is wrong with any of them, all of it.
    """
    entries = workshop.project.document
    for name in names:
        if name not in entries:
            from hpc_utils import toml_config

            raise project.ProjectError(f"no document {name!r} in paper.toml: {toml_config.hint(name, entries)}")
    faults: list[Fault] = []
    written: list[Path] = []
    done: dict[str, Filled] = {}
    for name in entries:
        own, asked = Faults(), not names or name in names
        if asked:
            say(f"{name}: {entries[name].source}")
        elif check:
            continue  # others are read for the list of all numbers only
        filled, around = _filled(workshop, name, own, say if asked else _silent)
        if asked and (workshop.target / f"{name}.pdf").is_dir():
            own.add(workshop.called(f"build/{name}.pdf"), 0, "is a folder, where the PDF is to stand: remove it")
        if asked and not check and not own:
            files = outputs.write(workshop, name, filled, around, own)
            for path in files if not own else []:
                say(f"  wrote {workshop.called(str(path.relative_to(workshop.folder)))}")
            written += files if not own else []
        if own and asked:
            faults += [fault for fault in own.found if fault not in faults]
            if not check:
                outputs.discard(workshop, name)
        if not own:
            done[name] = filled
    if not check:
        written += outputs.numbers(workshop, done)
    if faults:
        raise DocumentError(faults)
    return written


def _silent(line: str) -> None:
    """Of documents that were not asked for nothing is said."""


def _filled(
    workshop: Workshop, name: str, faults: Faults, say: Callable[[str], None]
) -> tuple[Filled | None, Around | None]:
    entry = workshop.project.document[name]
    here = workshop.called("paper.toml")
    found = workshop.sets(workshop.project.aliases(name), say)
    for alias, one in found.by_alias.items():
        line = project.line_of(workshop.folder / "paper.toml", alias)
        for said in one.faults:
            faults.add(here, line, f"results {alias}: {said}")
    read = source.read(workshop.folder / entry.source, workshop.called(entry.source), faults)
    if read is None:
        return None, None
    says = any(mark.kind == "value" and mark.text.startswith("claim") for part in read.parts for mark in part.marks)
    said, rests_on = claims.said(workshop, found, faults, say) if says else ({}, {})
    around = Around(
        found, said, rests_on, _citations(workshop, entry, faults), (workshop.folder / entry.source).parent
    )
    filled = fill(read, around, faults)
    for drawing in filled.drawings:
        letters = LETTERS["wide" if drawing.wide or entry.template != "paper" else "column"]
        if said := too_wide(drawing, letters):
            faults.add(filled.source.file, drawing.line, said)
    _check_letters(filled, faults)
    return filled, around


def _citations(workshop: Workshop, entry: DocumentEntry, faults: Faults) -> frozenset[str]:
    """Keys of the document's bibliographies."""
    keys: list[str] = []
    for name in entry.bibliography:
        if not (workshop.folder / name).is_file() and (name,) != entry.bibliography:
            line = project.line_of(workshop.folder / "paper.toml", "bibliography")
            faults.add(
                workshop.called("paper.toml"), line, f"there is no bibliography {name}: write it, or correct the name"
            )
    for file in workshop.bibliography(entry):
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            faults.add(workshop.called(file.name), 0, f"cannot be read as UTF-8: {error}")
            continue
        own = re.findall(r"^\s*@(?!comment|string|preamble)\w+\s*\{\s*([^,\s]+)\s*,", text, re.M | re.I)
        for key in {key for key in own if own.count(key) > 1 or key in keys}:
            faults.add(workshop.called(file.name), 0, f"{key} stands twice in the bibliography: remove one")
        keys += own
    return frozenset(keys)


def _check_letters(filled: Filled, faults: Faults) -> None:
    letters = typst.letters(filled)
    own = {letter for found in filled.values.values() for letter in found.what.says}
    for letter in fonts.missing({*letters, *own}):
        line = letters.get(letter, 0)
        where = "" if line else " in the sentence of a value"
        faults.add(
            filled.source.file, line, f"no font at hand has {fonts.named(letter)}{where}: use another character"
        )
