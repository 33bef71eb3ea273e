"""A report (`.nsys-rep`) made into an export, by the nsys of this machine."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ..timeline import ProfileError

REPORTS = (".nsys-rep", ".qdrep")
MAGIC = b"NVIDIA Tegra Profiler Report"
PATIENCE = 3600.0  # s: exporting a report of some GB takes minutes


@contextmanager
def exported(path: Path) -> Iterator[Path]:
    """The export of a report: what lies beside it if that is newer, else a temporary one; any other file as it is.

    Raises:
        ProfileError: there is no nsys here, or it cannot read the report (one can be opened by its own version of nsys or
            a newer one).
    """
    if not _is_report(path):
        yield path
        return
    beside = path.with_suffix(".sqlite")
    if beside.is_file() and path.is_file() and beside.stat().st_mtime >= path.stat().st_mtime:
        yield beside
        return
    with TemporaryDirectory(prefix="hpc-nsys-") as folder:
        file = Path(folder) / "export.sqlite"
        export(path, file)
        yield file


def export(path: Path, file: Path) -> None:
    """Write the SQLite export of the report `path` to `file`."""
    if not path.is_file():
        raise ProfileError(f"{path} cannot be read: no such file")
    nsys = shutil.which("nsys")
    if nsys is None:
        raise ProfileError(
            f"{path} is a report, and there is no nsys here to open it: export it where it was made and take the file "
            f"along: nsys export --type sqlite --output {shlex.quote(path.with_suffix('.sqlite').name)} "
            f"{shlex.quote(path.name)}"
        )
    command = [nsys, "export", "--type", "sqlite", "--force-overwrite", "true"]
    try:
        done = subprocess.run(
            [*command, "--output", str(file), str(path.absolute())],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProfileError(f"{path} could not be exported: {error}") from error
    if done.returncode or not file.is_file():
        said = (done.stderr.strip() or done.stdout.strip().split("\r")[-1]).splitlines()
        raise ProfileError(
            f"{path} could not be exported by {nsys}: {' '.join(said)[-500:]}. Is it whole? A report needs the nsys that "
            "made it, or a newer one"
        )


def _is_report(path: Path) -> bool:
    if path.suffix in REPORTS:
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False
