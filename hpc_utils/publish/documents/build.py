"""All documents of `paper/paper.toml`: checked together, then built one by one."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpc_utils import provenance
from hpc_utils.records import atomic

from . import colophon, fonts, latex, project, sets, source, typst
from .faults import DocumentError, Fault, Faults
from .fill import Around, Filled, fill
from .project import DocumentEntry, Project
from .typed import SAID

NUMBERS = "numbers"


@dataclass
class Workshop:
    """What all documents share: read once. `folder`: `paper/`; `root`: what the sets' folders are relative to."""

    root: Path
    folder: Path
    project: Project
    known: dict[str, sets.ResultSet] = field(default_factory=dict)

    @property
    def target(self) -> Path:
        return self.folder / "build"

    def called(self, name: str) -> str:
        """A file of the folder, as it is called in what is said of it."""
        path = self.folder / name
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)

    def sets(self, aliases: Iterable[str], say: Callable[[str], None]) -> sets.Sets:
        """Those result sets; each is read and checked once."""
        for alias in aliases:
            if alias not in self.known:
                say(f"checking the results {alias} ({self.project.sets[alias]})")
                self.known[alias] = sets.read(alias, self.root / self.project.sets[alias])
        return sets.Sets(self.known[alias] for alias in aliases)


def open_(root: Path, folder: Path | None = None) -> Workshop:
    """The documents of a checkout; `folder` holds paper.toml, by default `paper/`.

    Raises:
        project.ProjectError: paper.toml is wrong.
    """
    folder = folder or root / "paper"
    return Workshop(root, folder, project.read(folder / "paper.toml"))


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
            from hpc_utils import strict

            raise project.ProjectError(f"no document {name!r} in paper.toml: {strict.hint(name, entries)}")
    faults: list[Fault] = []
    written: list[Path] = []
    done: dict[str, Filled] = {}
    for name in names or entries:
        own = Faults()
        say(f"{name}: {entries[name].source}")
        filled, around = _filled(workshop, name, own, say)
        files = [] if own or filled is None or check else _outputs(workshop, name, filled, around, own)
        if own:
            faults += own.found
            _discard(workshop, name)
            continue
        done[name] = filled
        written += files
        for path in files:
            say(f"  wrote {workshop.called(str(path.relative_to(workshop.folder)))}")
    if done and not check and not names:
        written.append(_all_numbers(workshop, done, Faults()))
    if faults:
        raise DocumentError(faults)
    return written


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
    claims, rests_on = _claims(workshop, found, faults) if says else ({}, {})
    around = Around(
        found, claims, rests_on, _citations(workshop, entry, faults), (workshop.folder / entry.source).parent
    )
    filled = fill(read, around, faults)
    _check_digests(filled, entry, name, here, workshop, faults)
    _check_letters(filled, faults)
    return filled, around


def _claims(
    workshop: Workshop, found: sets.Sets, faults: Faults
) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    path = workshop.folder / workshop.project.claims
    if not path.is_file():
        return {}, {}
    from hpc_utils.analyze import claims
    from hpc_utils.publish import amounts
    from hpc_utils.publish import claims as wording

    try:
        judged = claims.judge(claims.read(path), found.named(), lambda value: amounts.text(value, "interval"))
    except claims.ClaimError as error:
        for line in str(error).splitlines():
            faults.add(workshop.called(workshop.project.claims), 0, line.removeprefix(f"{path}: "))
        return {}, {}
    measured = {one.name: tuple(test.name for test in one.tests if test.found is not None) for one in judged}
    return {one.name: wording.statement(one) for one in judged}, measured


def _citations(workshop: Workshop, entry: DocumentEntry, faults: Faults) -> frozenset[str]:
    """Keys of the document's bibliographies."""
    keys: list[str] = []
    for file in _bibliography(workshop, entry):
        text = file.read_text(encoding="utf-8")
        own = re.findall(r"^\s*@(?!comment|string|preamble)\w+\s*\{\s*([^,\s]+)\s*,", text, re.M | re.I)
        for key in {key for key in own if own.count(key) > 1 or key in keys}:
            faults.add(workshop.called(file.name), 0, f"{key} stands twice in the bibliography: remove one")
        keys += own
    return frozenset(keys)


def _bibliography(workshop: Workshop, entry: DocumentEntry) -> list[Path]:
    files = [workshop.folder / name for name in entry.bibliography]
    return [file for file in files if file.is_file()]


def _check_digests(
    filled: Filled, entry: DocumentEntry, name: str, here: str, workshop: Workshop, faults: Faults
) -> None:
    """Values of different measuring code may stand in one document only if it says why that does no harm."""
    by: dict[str, list[str]] = defaultdict(list)
    for one in filled.used:
        for digest in one.told("digest"):
            by[digest].append(one.full)
    if len(by) > 1 and not entry.mixed_digests:
        told = "; ".join(
            f"{digest}: {owners[0]}" + (f" and {len(owners) - 1} more" if len(owners) > 1 else "")
            for digest, owners in sorted(by.items())
        )
        line = project.line_of(workshop.folder / "paper.toml", name)
        faults.add(here, line, f"{name} draws on runs of {len(by)} versions of the measuring code ({told}): say in "
                               "`mixed_digests = \"...\"` why they may stand side by side; the colophon prints it")  # fmt: skip


def _check_letters(filled: Filled, faults: Faults) -> None:
    letters = typst.letters(filled)
    own = {letter for found in filled.values.values() for letter in found.what.says}
    for letter in fonts.missing({*letters, *own}):
        line = letters.get(letter, 0)
        where = "" if line else " in the sentence of a value"
        faults.add(
            filled.source.file, line, f"no font at hand has {fonts.named(letter)}{where}: use another character"
        )


def _outputs(workshop: Workshop, name: str, filled: Filled, around: Around, faults: Faults) -> list[Path]:
    entry = workshop.project.document[name]
    meta = _meta(workshop, name, filled, around)
    bibliography = _bibliography(workshop, entry)
    with tempfile.TemporaryDirectory() as scratch:
        typst.write(filled, Path(scratch), entry.template, meta, bibliography)
        pdf = typst.compile_(Path(scratch), filled.source.file, faults)
    if pdf is None:
        return []
    written = [workshop.target / f"{name}.pdf"]
    atomic.write(written[0], lambda file: file.write(pdf))
    for style in entry.tex:
        folder = workshop.target / "tex" / style
        latex.export(filled, folder, style, meta, bibliography, faults, name)
        written.append(folder / f"{name}.tex")
    return written


def _meta(workshop: Workshop, name: str, filled: Filled, around: Around) -> dict[str, Any]:
    entry, front = workshop.project.document[name], filled.source.front
    from .tree import plain

    title = " ".join(plain(block["c"]) for block in filled.source.words["title"].blocks if block["t"] == "Para")
    keywords = front.get("keywords") or []
    rows = colophon.rows(
        filled.used, around.sets, commit=provenance.commit(workshop.root), dirty=provenance.dirty(workshop.root),
        mixed=entry.mixed_digests, command="make paper",
    )  # fmt: skip
    return {
        "title": title,
        "short": str(front.get("short") or title),
        "authors": [_author(one) for one in front.get("author") or []],
        "keywords": [str(word) for word in (keywords if isinstance(keywords, list) else [keywords])],
        "facts": [str(front[key]) for key in ("call", "acronym", "version", "date", "note") if front.get(key)],
        "colophon": rows,
        "numbers": colophon.numbers(filled.values.values()) if entry.numbers == "within" else [],
    }


def _author(one: dict[str, Any]) -> dict[str, Any]:
    more = [str(one[key]) for key in ("affiliation", "email", "orcid") if one.get(key)]
    return {"name": one["name"], "more": more}


def _all_numbers(workshop: Workshop, done: dict[str, Filled], faults: Faults) -> Path:
    """numbers.pdf: each document's numbers, one after another; a number stands where it is used first."""
    seen: set[str] = set()
    parts = []
    for name, filled in done.items():
        new = [one for full, one in filled.values.items() if full not in seen]
        seen.update(filled.values)
        said = sorted(
            {(f"{one.passage}", f"{SAID[one.kind]}; {filled.source.file}:{one.line}") for one in filled.said}
        )
        if new or said:
            parts.append({"title": name, "numbers": colophon.numbers(new), "said": said})
    lead = "Each number of the documents: its name, value with 95 % interval, what it is, and what it rests on. A number stands "
    lead += "with the first document that uses it."
    meta = {"title": "Every number, and where it comes from", "short": "Every number", "authors": [], "keywords": [],
            "facts": [lead], "parts": parts, "colophon": [], "numbers": []}  # fmt: skip
    listing = Filled(source.Source("numbers", {}, {}, source.Part([], [])))
    listing.words["title"] = source.parse(meta["title"]).blocks
    with tempfile.TemporaryDirectory() as scratch:
        typst.write(listing, Path(scratch), NUMBERS, meta, [])
        pdf = typst.compile_(Path(scratch), NUMBERS, faults)
    if pdf is None:
        raise DocumentError(faults.found)
    path = workshop.target / f"{NUMBERS}.pdf"
    atomic.write(path, lambda file: file.write(pdf))
    return path


def _discard(workshop: Workshop, name: str) -> None:
    """Nothing of a former build is left where the sources say something else by now."""
    (workshop.target / f"{name}.pdf").unlink(missing_ok=True)
    for style in project.CLASSES:
        if (workshop.target / "tex" / style / f"{name}.tex").is_file():
            shutil.rmtree(workshop.target / "tex" / style)
