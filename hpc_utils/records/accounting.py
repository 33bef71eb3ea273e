"""Slurm's accounting of the jobs that made runs, as archived in the run folders."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from . import packed
from .folder import SACCT


def read_accounting(results: Path, run_ids: Iterable[str]) -> pd.DataFrame:
    """`sacct` of the jobs that made these runs: run_id and its columns, a row for each job and step; empty if none is archived."""
    folders = {run_id: results / "runs" / run_id for run_id in run_ids}
    archived = {run_id: folder / SACCT for run_id, folder in folders.items() if SACCT in packed.names(folder)}
    tables = {run_id: pd.read_csv(io.BytesIO(packed.content(file))) for run_id, file in archived.items()}
    return pd.concat(tables, names=["run_id"]).reset_index("run_id") if tables else pd.DataFrame()
