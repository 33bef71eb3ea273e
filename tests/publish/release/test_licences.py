"""Each file has one licence, whose text is there."""

from __future__ import annotations

import pytest

from hpc_utils.publish.release import licences
from hpc_utils.publish.release.tree import ReleaseRefused

PROJECT = {"license": "MIT"}
RULES = """version = 1
[[annotations]]
path = "**"
SPDX-FileCopyrightText = "x"
SPDX-License-Identifier = "MIT"
[[annotations]]
path = ["docs/*.md", "art/**"]
SPDX-FileCopyrightText = "x"
SPDX-License-Identifier = "CC-BY-4.0"
"""


def files(**more: bytes) -> dict[str, bytes]:
    texts = {"LICENSES/MIT.txt": b"mit", "LICENSES/CC-BY-4.0.txt": b"by", "LICENSE": b"mit"}
    return {"REUSE.toml": RULES.encode(), "a.py": b"", "art/x/y.png": b"", **texts, **more}


def test_the_last_rule_that_fits_counts() -> None:
    found = licences.of(files() | {"docs/a.md": b"", "docs/deep/a.md": b""})
    assert found == {"a.py": "MIT", "art/x/y.png": "CC-BY-4.0", "docs/a.md": "CC-BY-4.0", "docs/deep/a.md": "MIT"}
    assert licences.faults(files(), PROJECT) == []


def test_a_file_without_a_licence_is_named() -> None:
    narrow = files() | {"REUSE.toml": RULES.replace('"**"', '"*.py"').encode(), "b.toml": b""}
    assert licences.faults(narrow, PROJECT) == ["no licence is said for b.toml: add them to REUSE.toml"]


def test_texts_and_licences_belong_together() -> None:
    lacking = {name: text for name, text in files().items() if name != "LICENSES/CC-BY-4.0.txt"}
    assert "LICENSES/CC-BY-4.0.txt is missing" in licences.faults(lacking, PROJECT)[0]
    assert (
        "LICENSES/GPL-3.0.txt is the licence of no file"
        in licences.faults(files() | {"LICENSES/GPL-3.0.txt": b""}, PROJECT)[0]
    )
    assert "LICENSE is not LICENSES/MIT.txt" in licences.faults(files() | {"LICENSE": b"another"}, PROJECT)[0]


def test_no_list_no_licences() -> None:
    with pytest.raises(ReleaseRefused, match=r"REUSE\.toml is missing"):
        licences.of({"a.py": b""})
    assert "not TOML" in licences.faults({"REUSE.toml": b"= ="}, PROJECT)[0]
