"""The manifest lists what each document was built from."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_utils.publish import manifest
from hpc_utils.publish.chapter import Chapter

from .conftest import execution


@pytest.fixture
def built(exported: Path, tmp_path: Path) -> Path:
    """The folder of two documents from one source and a set, all in `tmp_path`."""
    (tmp_path / "paper.md").write_text("words")
    folder = tmp_path / "build"
    folder.mkdir()
    for name in ("slides", "paper"):
        (folder / f"{name}.pdf").write_bytes(name.encode())
        manifest.note([folder / f"{name}.pdf"], tmp_path, [tmp_path / "paper.md"], [exported])
    return folder


def test_each_document_is_listed_with_its_sources_and_sets(built: Path, exported: Path, tmp_path: Path) -> None:
    found = manifest.read_manifest(built)
    assert list(found) == ["paper", "slides"]
    assert found["paper"]["files"] == {"paper.pdf": manifest.of_bytes(b"paper")}
    assert found["paper"]["sources"] == {"paper.md": manifest.of_bytes(b"words")}
    assert found["paper"]["sets"] == {"results": manifest.of_set(exported)}
    execution(exported, "x", Chapter("x").close())
    assert found["paper"]["sets"] != {"results": manifest.of_set(exported)}, "it follows the set's exports"
    (built / "paper.pdf").write_bytes(b"another")
    manifest.note([built / "paper.pdf"], tmp_path, [], [])
    manifest.forget(built / "slides.pdf")
    manifest.forget(tmp_path / "elsewhere.pdf")
    again = {name: entry["files"] for name, entry in manifest.read_manifest(built).items()}
    assert again == {"paper": {"paper.pdf": manifest.of_bytes(b"another")}}


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 9, "documents": {}}'])
def test_what_is_no_manifest_is_refused_and_written_over(built: Path, tmp_path: Path, text: str) -> None:
    (built / manifest.FILE).write_text(text)
    with pytest.raises(manifest.NoManifest):
        manifest.read_manifest(built)
    manifest.note([built / "paper.pdf"], tmp_path, [], [])
    assert list(manifest.read_manifest(built)) == ["paper"]
