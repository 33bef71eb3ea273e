"""Foreign results as they are kept: `results/foreign/<name>/`, apart from what was measured here."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_utils import paths
from hpc_utils.records import atomic, schema
from hpc_utils.records.folder import read_json

from .errors import ForeignError
from .mapping import WORDS
from .runs import Foreign, checked_name, digest

if TYPE_CHECKING:
    import pandas as pd

TEXT = (*WORDS, "run_id", "state", "settings", "device", "backend", "hardware_id", "host", "job_id", "digest", "commit",
        "started", "torch", "path", "foreign", "lines", "verdict", "correction", "derived")  # fmt: skip


def keep(found: Foreign, provenance: Mapping[str, Any]) -> Path:
    """Write `found` to `results/foreign/<name>/` and return the folder; the same source again replaces it.

    `provenance` says by which code it was imported (digest, commit, dirty).

    Raises:
        ForeignError: another file is kept under that name.
    """
    folder = _folder(found.name)
    before = read_json(folder / "provenance.json")
    source = digest(found.files["source.csv"])
    if before is not None and before.get("sha256", {}).get("source.csv") != source:
        raise ForeignError(f"{folder} holds another file's results: give another name (--as), or remove that folder")
    files = found.files | {"runs.csv": found.runs.to_csv(index=False, lineterminator="\n").encode()}
    for name, content in files.items():
        atomic.write(folder / name, lambda file, content=content: file.write(content))
    record = {
        "foreign": found.name,
        "title": found.mapping.title,
        "source": found.mapping.source,
        "licence": found.mapping.licence,
        "imported_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "imported_by": dict(provenance),
        "sha256": {name: digest(content) for name, content in files.items()},
        "runs": len(found.runs),
        "refused": {f"line {line}": why for line, why in found.refused.items()},
    }
    atomic.write_json(folder / "provenance.json", record)  # last: with it the set is whole
    return folder


def load(name: str | None = None, results: Path | None = None) -> pd.DataFrame:
    """The runs of the foreign set `name`, by default of all; columns as in `schema.RUNS` and `schema.FOREIGN`.

    Raises:
        ForeignError: there is no such set, or its files are not those that were imported.
    """
    import pandas as pd

    columns = [*schema.names(schema.RUNS), *schema.names(schema.FOREIGN)]  # of today: a set may be older
    frames = [_runs(folder).reindex(columns=columns) for folder in _folders(name, results)]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)


def _folder(name: str, results: Path | None = None) -> Path:
    return Path(results or paths.results()) / "foreign" / name


def _folders(name: str | None, results: Path | None) -> Iterator[Path]:
    if name is not None:
        folder = _folder(checked_name(name), results)
        if not folder.is_dir():
            raise ForeignError(f"no foreign results {name!r} in {folder.parent}: `hpc import` makes them")
        yield folder
    elif (home := _folder("", results)).is_dir():
        yield from sorted(path for path in home.iterdir() if path.is_dir())


def _runs(folder: Path) -> pd.DataFrame:
    import pandas as pd

    record = read_json(folder / "provenance.json") or {}
    contents = {name: _content(folder / name) for name in ("source.csv", "mapping.toml", "runs.csv")}
    for name, content in contents.items():
        if content is None or record.get("sha256", {}).get(name) != digest(content):
            raise ForeignError(f"{folder / name} is not as it was imported: import it again, or remove the folder")
    return pd.read_csv(
        io.BytesIO(contents["runs.csv"]), dtype=dict.fromkeys(TEXT, "str"), keep_default_na=False, na_values=[""]
    )


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
