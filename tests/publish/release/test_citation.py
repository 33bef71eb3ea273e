"""CITATION.cff says who, what and which version, and all that catalogues are told comes from it."""

from __future__ import annotations

from datetime import date

import pytest

from hpc_utils import paths
from hpc_utils.publish.release import citation
from hpc_utils.publish.release.tree import ReleaseRefused

WHOLE = """cff-version: 1.2.0
message: Cite it.
title: A study
version: 0.10
license: MIT
abstract: What it is.
keywords: [scaling]
date-released: 2026-03-01
authors:
  - {given-names: Ada, name-particle: de, family-names: Byron, affiliation: A place, orcid: "https://orcid.org/0000-0001-2345-6789"}
  - name: A group
identifiers:
  - {type: url, value: "https://example.org"}
  - {type: doi, value: 10.5281/zenodo.1}
"""
PROJECT = b'[project]\nname = "x"\nversion = "0.10"\nlicense = "MIT"\n'


def files(text: str = WHOLE, project: bytes = PROJECT) -> dict[str, bytes]:
    return {"CITATION.cff": text.encode(), "pyproject.toml": project}


def test_ours_is_whole_and_in_step_with_the_package() -> None:
    ours = {name: (paths.root() / name).read_bytes() for name in ("CITATION.cff", "pyproject.toml")}
    assert citation.faults(ours) == []
    assert set(citation.licences(citation.read(ours))) == {"BSD-3-Clause", "CC-BY-4.0"}


def test_zenodo_is_told_what_stands_there() -> None:
    cited = citation.read(files())
    told = citation.zenodo(cited, date(2030, 1, 1))
    assert told["creators"] == [
        {"name": "Byron, Ada", "affiliation": "A place", "orcid": "0000-0001-2345-6789"},
        {"name": "A group"},
    ]
    assert (told["version"], told["license"], told["doi"]) == ("0.10", "mit", "10.5281/zenodo.1")
    assert told["publication_date"] == "2026-03-01"
    assert citation.zenodo(cited | {"date-released": ""}, date(2030, 1, 1))["publication_date"] == "2030-01-01"
    assert citation.name(cited["authors"][0]) == "Ada de Byron"
    assert citation.incomplete(cited) == []


def test_two_versions_are_a_fault() -> None:
    assert citation.faults(files()) == []
    (told,) = citation.faults(
        files(WHOLE.replace("version: 0.10", "version: 0.1", 1).replace("cff-version: 0.1", "cff-version: 1.2.0"))
    )
    assert "CITATION.cff says version 0.1, pyproject.toml 0.10" in told
    assert "does not name MIT" in citation.faults(files(WHOLE.replace("license: MIT", "license: [GPL-3.0-only]")))[0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (WHOLE.replace("abstract: What it is.\n", ""), "lacks abstract"),
        (WHOLE.replace("1.2.0", "1.1.0"), "version 1.1.0 of its format"),
        (WHOLE.replace("name: A group", "website: https://example.org"), "neither family-names nor"),
        ("a: [", "no YAML"),
        ("just words", "lacks cff-version"),
    ],
)
def test_what_is_missing_is_named(text: str, told: str) -> None:
    with pytest.raises(ReleaseRefused, match=told):
        citation.read(files(text))


def test_nobody_by_name_and_no_date_is_not_yet_a_citation() -> None:
    cited = citation.read(
        files(WHOLE.replace("A group", "The compendium's authors").replace("date-released: 2026-03-01\n", ""))
    )
    assert citation.incomplete(cited) == [
        'an author is "The compendium\'s authors", nobody by name',
        "date-released is not set",
    ]
