"""What a file says to somebody who looks into it: unpacked, and with what a PDF tells about itself."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator

DEEP = 3  # archives in archives


def of(name: str, content: bytes, deep: int = DEEP) -> Iterator[tuple[str, str]]:
    """(where, text) of all that is readable in a file; `where` is its name, and behind it what was unpacked.

    Bytes that are no text are read as Latin-1, so that words among them are found. What cannot be unpacked is read as it is.
    """
    yield name, _decoded(content)
    try:
        if content[:2] == b"\x1f\x8b" and deep:
            yield from of(f"{name}, unpacked", gzip.decompress(content), deep - 1)
        elif content[:4] == b"PK\x03\x04" and deep:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                for member in archive.infolist():
                    yield from of(f"{name}, {member.filename}", archive.read(member), deep - 1)
        elif content[:5] == b"%PDF-":
            yield from _pdf(name, content)
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError):
        return


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _pdf(name: str, content: bytes) -> Iterator[tuple[str, str]]:
    import pypdf

    try:
        reader = pypdf.PdfReader(io.BytesIO(content))
        facts = "\n".join(f"{key}: {value}" for key, value in (reader.metadata or {}).items())
        outer = reader.root_object.get("/Metadata")
        yield f"{name}, its metadata", facts + ("\n" + _decoded(outer.get_data()) if outer else "")
        yield f"{name}, its pages", "\n".join(page.extract_text() for page in reader.pages)
    except Exception:  # pypdf raises whatever a damaged file makes it stumble over; its bytes were read
        return
