"""A folder and a zip of the same files; the same files give the same bytes."""

from __future__ import annotations

import io
import shutil
import tempfile
import zipfile
from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path

from hpc_utils.records import atomic

PLAIN, PROGRAM = 0o100644, 0o100755
LEVEL = 6


def zipped(top: str, files: Mapping[str, bytes], executable: Collection[str], when: datetime) -> bytes:
    """A zip with everything under the folder `top`, by name, all of the time `when`."""
    buffer, moment = io.BytesIO(), (max(when.year, 1980), *when.timetuple()[1:6])
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in sorted(files.items()):
            member = zipfile.ZipInfo(f"{top}/{name}", moment)
            member.create_system = 3  # Unix, wherever it is packed: the rights below count
            member.external_attr = (PROGRAM if name in executable else PLAIN) << 16
            archive.writestr(member, content, zipfile.ZIP_DEFLATED, LEVEL)
    return buffer.getvalue()


def write(output: Path, top: str, files: Mapping[str, bytes], executable: Collection[str], when: datetime) -> Path:
    """Write `output/<top>/` and `output/<top>.zip`, whole or not at all; returns the zip's path. What was there of that
    name is replaced."""
    output.mkdir(parents=True, exist_ok=True)
    packed = zipped(top, files, executable, when)
    with tempfile.TemporaryDirectory(dir=output, prefix=f".{top}.") as made:
        folder = Path(made) / top
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod((PROGRAM if name in executable else PLAIN) & 0o777)
        shutil.rmtree(output / top, ignore_errors=True)
        folder.rename(output / top)
    path = output / f"{top}.zip"
    atomic.write(path, lambda file: file.write(packed))
    return path
