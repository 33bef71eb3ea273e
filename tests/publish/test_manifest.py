"""The manifest tells what each text was built from, text by text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpc_utils.publish import manifest


@pytest.fixture
def built(exported: Path, tmp_path: Path) -> Path:
    """The folder of two texts from one source and a set, all in `tmp_path`."""
    (tmp_path / "paper.md").write_text("words")
    folder = tmp_path / "build"
    folder.mkdir()
    for name in ("slides", "paper"):
        (folder / f"{name}.pdf").write_bytes(name.encode())
        manifest.note(folder / f"{name}.pdf", tmp_path, [tmp_path / "paper.md"], [exported])
    return folder


def test_each_text_is_noted_with_sources_and_sets(built: Path, exported: Path) -> None:
    found = manifest.read(built)
    assert list(found) == ["paper", "slides"]
    assert found["paper"]["file"] == "paper.pdf"
    assert found["paper"]["sha256"] == manifest.of_bytes(b"paper")
    assert found["paper"]["sources"] == {"paper.md": manifest.of_bytes(b"words")}
    assert found["paper"]["sets"] == {"results": manifest.of_set(exported)}


def test_what_is_built_again_is_noted_anew_and_what_is_gone_forgotten(built: Path, tmp_path: Path) -> None:
    (built / "paper.pdf").write_bytes(b"another")
    manifest.note(built / "paper.pdf", tmp_path, [], [])
    manifest.forget(built / "slides.pdf")
    manifest.forget(tmp_path / "elsewhere.pdf")
    assert {name: entry["sha256"] for name, entry in manifest.read(built).items()} == {
        "paper": manifest.of_bytes(b"another")
    }


def test_a_set_s_fingerprint_follows_its_exports(exported: Path) -> None:
    before = manifest.of_set(exported)
    (page,) = (exported / "exports").glob("*.json")
    page.write_text(json.dumps(json.loads(page.read_text()) | {"fingerprint": "0"}))
    assert manifest.of_set(exported) != before


@pytest.mark.parametrize(
    "text", ["", "[]", '{"schema": 9, "documents": {}}', '{"schema": 1, "documents": {"a": {"file": "../a.pdf"}}}']
)
def test_what_is_no_manifest_is_reported_and_written_over(built: Path, tmp_path: Path, text: str) -> None:
    (built / manifest.FILE).write_text(text)
    with pytest.raises(manifest.NoManifest, match="cannot be read"):
        manifest.read(built)
    manifest.note(built / "paper.pdf", tmp_path, [], [])
    assert list(manifest.read(built)) == ["paper"]
    with pytest.raises(manifest.NoManifest, match="is missing"):
        manifest.read(tmp_path)
