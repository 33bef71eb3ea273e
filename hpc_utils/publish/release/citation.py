"""CITATION.cff: the one source of authors, title, keywords and licences; what other catalogues want is made from it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import date
from typing import Any

from .tree import ReleaseRefused

FILE = "CITATION.cff"
NEEDED = ("cff-version", "message", "title", "authors", "version", "license", "abstract", "keywords")
PLACEHOLDER = re.compile(r"(?i)the compendium's authors|.*\byour\b.*|anonymous.*|a\. ?author")


def project(files: Mapping[str, bytes]) -> dict[str, Any]:
    """The `project` table of pyproject.toml.

    Raises:
        ReleaseRefused: it is missing or no TOML.
    """
    try:
        return tomllib.loads(files["pyproject.toml"].decode())["project"]
    except (KeyError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ReleaseRefused(
            f"pyproject.toml is missing or cannot be read ({error}): it says name and version"
        ) from None


def read(files: Mapping[str, bytes]) -> dict[str, Any]:
    """CITATION.cff, with what a catalogue needs of it.

    Raises:
        ReleaseRefused: it is missing, is no YAML, or lacks something.
    """
    import yaml

    try:
        # Dates and versions as they are written: 0.10 is no number.
        content = yaml.load(files[FILE].decode(), Loader=yaml.BaseLoader)
    except KeyError:
        raise ReleaseRefused(f"{FILE} is missing: it says who made this") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ReleaseRefused(f"{FILE} is no YAML: {error}") from None
    content = content if isinstance(content, dict) else {}
    if lacking := [name for name in NEEDED if not content.get(name)]:
        raise ReleaseRefused(f"{FILE} lacks {', '.join(lacking)} (Citation File Format 1.2.0)")
    if content["cff-version"] != "1.2.0":
        raise ReleaseRefused(f"{FILE} is of version {content['cff-version']} of its format; we read 1.2.0")
    for author in content["authors"]:
        if not (author.get("name") or author.get("family-names")):
            raise ReleaseRefused(f"{FILE}: an author has neither family-names nor, as a group, a name")
    return content


def faults(files: Mapping[str, bytes]) -> list[str]:
    """Where CITATION.cff and pyproject.toml say two things."""
    try:
        cited, own = read(files), project(files)
    except ReleaseRefused as error:
        return [str(error)]
    found = []
    if cited["version"] != own["version"]:
        found.append(f"{FILE} says version {cited['version']}, pyproject.toml {own['version']}: make them one")
    if own["license"] not in licences(cited):
        found.append(f"{FILE} does not name {own['license']}, the code's licence as pyproject.toml has it")
    return found


def incomplete(cited: Mapping[str, Any]) -> list[str]:
    """What a reader who wants to cite a finished work would miss."""
    found = [f"an author is {name(a)!r}, nobody by name" for a in cited["authors"] if PLACEHOLDER.fullmatch(name(a))]
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", cited.get("date-released", "")):
        found.append("date-released is not set")
    return found


def doi(cited: Mapping[str, Any]) -> str:
    """The DOI reserved for this work; empty if there is none."""
    listed = [one.get("value", "") for one in cited.get("identifiers", ()) if one.get("type") == "doi"]
    return cited.get("doi") or next(iter(listed), "")


def licences(cited: Mapping[str, Any]) -> list[str]:
    """SPDX identifiers."""
    return [cited["license"]] if isinstance(cited["license"], str) else list(cited["license"])


def name(author: Mapping[str, str]) -> str:
    """As a person would be addressed, or the group's name."""
    parts = (
        author.get("given-names"),
        author.get("name-particle"),
        author.get("family-names"),
        author.get("name-suffix"),
    )
    return author.get("name") or " ".join(filter(None, parts))


def zenodo(cited: Mapping[str, Any], released: date) -> dict[str, Any]:
    """What Zenodo's deposit form asks for (`.zenodo.json`); one licence is all that it can hold: the code's."""
    people = []
    for author in cited["authors"]:
        given, family = author.get("given-names", ""), author.get("family-names", "")
        person = {"name": f"{family}, {given}" if family and given else name(author)}
        if affiliation := author.get("affiliation"):
            person["affiliation"] = affiliation
        if orcid := author.get("orcid"):
            person["orcid"] = orcid.rsplit("/", 1)[-1]
        people.append(person)
    return {
        "title": cited["title"],
        "upload_type": "software",
        "version": cited["version"],
        "publication_date": cited.get("date-released") or released.isoformat(),
        "description": cited["abstract"].strip(),
        "creators": people,
        "keywords": list(cited["keywords"]),
        "access_right": "open",
        "license": licences(cited)[0].lower(),
        "notes": f"Licences: {', '.join(licences(cited))}; REUSE.toml says which file stands under which.",
    } | ({"doi": doi(cited)} if doi(cited) else {})
