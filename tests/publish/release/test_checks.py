"""No secret and no machine's path leaves the house, wherever in a file it hides; and the tree itself is clean."""

from __future__ import annotations

import gzip
import io
import json
import zipfile

import pypdf
import pytest
import typst
from pypdf.generic import DecodedStreamObject, NameObject

from hpc_utils import paths
from hpc_utils.publish.release import ReleaseRefused, checks, licences, tree
from hpc_utils.publish.release.allowed import Allowed, allowed
from hpc_utils.publish.release.citation import project
from hpc_utils.publish.release.tree import tracked

from .conftest import pdf

# Put together here, so that the tests' own files hold none.
TOKEN = "ghp_" + "a1B2" * 10
PLACE = "/".join(("", "home", "anna", "study"))
OWN = "/made/up/clone"
NOTHING = Allowed()


def zipped(text: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.txt", text)
    return buffer.getvalue()


def notebook(text: str) -> bytes:
    output = {"output_type": "stream", "name": "stdout", "text": ["begin\n", text]}
    return json.dumps({"cells": [{"cell_type": "code", "source": [], "outputs": [output]}]}, indent=1).encode()


def drawn(text: str) -> bytes:
    """A page that shows it: compressed, letter by letter in glyphs of a font."""
    return typst.compile(f"#set page(width: 60cm)\n#raw({json.dumps(text)})".encode())


def described(text: str) -> bytes:
    """A PDF with it in compressed XMP metadata."""
    writer, told, buffer = pypdf.PdfWriter(), DecodedStreamObject(), io.BytesIO()
    writer.add_blank_page(100, 100)
    told.set_data(f"<x>{text}</x>".encode())
    writer.root_object[NameObject("/Metadata")] = writer._add_object(told.flate_encode())
    writer.write(buffer)
    return buffer.getvalue()


HIDDEN = {
    "plain.txt": lambda text: text.encode(),
    "records.json": lambda text: json.dumps({"environment": {"X": text}}).encode(),
    "chapter.ipynb": notebook,
    "trace.json.gz": lambda text: gzip.compress(text.encode()),
    "twice.gz": lambda text: gzip.compress(gzip.compress(text.encode())),
    "some.zip": zipped,
    "binary.bin": lambda text: b"\xff\xfe\x00" + text.encode() + b"\x00\xff",
    "paper.pdf": lambda text: pdf(Title="A paper", Author=text),
    "drawn.pdf": drawn,
    "described.pdf": described,
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_secret_is_found_wherever_it_hides_and_not_repeated(name: str) -> None:
    (told,) = checks.faults({f"results/{name}": HIDDEN[name](f"it is {TOKEN} here")}, NOTHING, ())
    assert told.startswith(f"results/{name}") and "a GitHub token" in told
    assert TOKEN not in told and "a1B2" not in told


@pytest.mark.parametrize("name", HIDDEN)
def test_a_machine_s_path_is_found_wherever_it_hides(name: str) -> None:
    (told,) = checks.faults({name: HIDDEN[name](f"from {PLACE} on")}, NOTHING, ())
    assert told.startswith(name) and f"{PLACE}, which some machine alone has" in told


def test_a_finding_says_its_line() -> None:
    (told,) = checks.faults({"a.txt": f"one\ntwo\nx={PLACE}\n".encode()}, NOTHING, ())
    assert told.startswith("a.txt:3: ")


def test_what_the_list_allows_is_no_fault_but_this_machine_s_own_is() -> None:
    listed = Allowed(place=({"files": "docs/*", "paths": [f"{PLACE}*", f"{OWN}*"], "why": "an example for readers"},))
    text = f"{PLACE} and {OWN}/file\n".encode()
    (told,) = checks.faults({"docs/a.md": text}, listed, (OWN,))
    assert f"{OWN}, which this machine alone has" in told
    assert len(checks.faults({"code/a.md": text}, listed, (OWN,))) == 2


def test_many_findings_in_one_file_are_told_once_and_shortly() -> None:
    text = "\n".join(f"{PLACE}/{number}\n{PLACE}" for number in range(100))
    assert 1 < len(checks.faults({"a": text.encode()}, NOTHING, ())) <= 3


@pytest.mark.parametrize("name", [".netrc", "a/.env", "keys/id_ed25519", "a/munge.key", "x.pem", "rank0.nsys-rep"])
def test_files_that_hold_secrets_by_their_nature_are_refused_by_name(name: str) -> None:
    assert any("out of git" in line for line in checks.faults({name: b""}, NOTHING, ()))


def test_large_files_are_refused_unless_listed_with_their_size() -> None:
    files = {"a/small": b"0" * 2**20, "a/large": b"0" * (2**20 + 1), "a/larger": b"0" * (2 * 2**20)}
    listed = Allowed(large=({"files": "a/large*", "mebibytes": 1.5, "why": "it has to be so"},))
    assert [line.split()[0] for line in checks.large(files, NOTHING)] == ["a/large", "a/larger"]
    assert [line.split()[0] for line in checks.large(files, listed)] == ["a/larger"]


def test_an_entry_of_the_list_needs_its_reason(tmp_path) -> None:
    path = tmp_path / "allowed.toml"
    path.write_text('[[place]]\nfiles = "*"\npaths = ["*"]\nwhy = ""\n')
    with pytest.raises(ReleaseRefused, match="why"):
        allowed(path)


def test_damaged_files_are_read_as_far_as_they_go() -> None:
    broken = {"a.gz": gzip.compress(b"x" * 99)[:-5], "b.zip": b"PK\x03\x04xxx", "c.pdf": b"%PDF-1.7\nxxx"}
    assert checks.faults(broken, NOTHING, ()) == []


@pytest.fixture(scope="module")
def committed() -> dict[str, bytes]:
    try:
        return tracked(paths.root())
    except ReleaseRefused:
        pytest.skip("not a git checkout: nothing is committed")


def test_the_compendium_itself_holds_no_secret_and_no_machine_s_path(committed: dict[str, bytes]) -> None:
    assert checks.faults(committed, allowed()) == []


def test_the_compendium_itself_is_of_small_files(committed: dict[str, bytes]) -> None:
    assert checks.large(committed, allowed()) == []


def test_every_file_of_the_compendium_has_its_licence(committed: dict[str, bytes]) -> None:
    assert licences.faults(committed, project(committed)) == []


def test_links_in_a_commit_are_refused(project, tmp_path) -> None:
    from .conftest import commit

    (project / "link").symlink_to("README.md")
    commit(project)
    with pytest.raises(ReleaseRefused, match="link is a link"):
        tree.head(project)
