"""The front matter of a source: what is between its two lines of ---, read strictly."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hpc_utils import toml_config

from .faults import Faults

WORDS = ("title", "subtitle", "abstract")  # text with values, held to the same rules as the body
PLAIN = ("short", "date", "version", "language", "call", "acronym", "note")  # text that is printed as it stands
AUTHOR = ("name", "affiliation", "email", "orcid")
KNOWN = (*WORDS, *PLAIN, "author", "keywords")


def read(head: str, file: str, faults: Faults) -> dict[str, Any]:
    """The keys that are right; what is wrong is a fault with its line."""
    import yaml

    try:
        front = yaml.safe_load(head) or {}
    except (yaml.YAMLError, ValueError) as error:  # 2026-02-31 is no date
        mark = getattr(error, "problem_mark", None)
        faults.add(
            file, mark.line + 2 if mark else 1, f"the front matter is not YAML: {getattr(error, 'problem', error)}"
        )
        return {}
    if not isinstance(front, dict):
        faults.add(file, 1, "the front matter must be keys with values, such as `title: ...`")
        return {}
    kept = {}
    for key, said in front.items():
        if wrong := _wrong(key, said):
            faults.add(file, line_of(str(key), head), wrong)
        else:
            kept[key] = said
    if "title" not in front:
        faults.add(file, 1, "the front matter has no title: write `title: ...` between two lines of ---")
    return kept


def plain(front: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(key, text) of all that is printed as it stands: no value can be in it, and no result."""
    for key in PLAIN:
        if front.get(key):
            yield key, str(front[key])
    keywords = front.get("keywords") or []
    yield from (("keywords", word) for word in ([keywords] if isinstance(keywords, str) else keywords))
    for author in front.get("author") or []:
        yield from (("author", str(author[key])) for key in ("name", "affiliation") if author.get(key))


def lines_of(key: str, value: str, head: str) -> tuple[str, int]:
    """A key's text with its line. A block scalar is taken from the source, so that its lines stay the file's."""
    lines = head.split("\n")
    at = line_of(key, head) - 2
    if at >= 0 and re.match(rf"{key}:\s*[|>][+-]?\s*$", lines[at]):
        block = []
        for line in lines[at + 1 :]:
            if line.strip() and not line.startswith((" ", "\t")):
                break
            block.append(line.strip())
        return "\n".join(block), at + 3
    return value, max(at, 0) + 2


def line_of(key: str, head: str) -> int:
    """The line of the file at which a key starts; 1 if it cannot be found."""
    return next((number for number, line in enumerate(head.split("\n"), 2) if line.startswith(f"{key}:")), 1)


def _wrong(key: Any, said: Any) -> str:
    """What is wrong with one key; empty if nothing is."""
    if key not in KNOWN:
        return f"unknown key {str(key)!r} in the front matter: {toml_config.hint(str(key), KNOWN)}"
    if key in WORDS and (not isinstance(said, str) or not said.strip()):
        return f"`{key}` is no text: write words (in quotes, if they look like a number), or leave the key out"
    if key in PLAIN and (said is None or isinstance(said, list | dict | bool)):
        return f"`{key}` is no text: write words on one line, or leave the key out"
    if key == "keywords" and not (isinstance(said, str) or _all(said, str)):
        return "`keywords` is no list of words: write [one, another]"
    if key == "author":
        if not _all(said, dict) or not all(isinstance(one.get("name"), str) and one["name"].strip() for one in said):
            return "each author needs a name: `author:` and below it `  - name: ...`"
        for one in said:
            for name, part in one.items():
                if name not in AUTHOR:
                    return f"unknown key {str(name)!r} of an author: {toml_config.hint(str(name), AUTHOR)}"
                if not isinstance(part, str):
                    return f"`{name}` of an author is no text: write words"
    return ""


def _all(said: Any, kind: type) -> bool:
    return isinstance(said, list) and all(isinstance(one, kind) for one in said)
