"""Fetches complete runs from a cluster's results folder by rsync; the checks on load accept or refuse each."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hpc_utils import paths
from hpc_utils.records.folder import PROFILE, read_json, state
from hpc_utils.records.load import Refused, verify

# Not fetched: checkpoints, former attempts, claims.
LEFT_THERE = ("checkpoints/", "earlier/", "claims/", "progress.json")


class PullError(RuntimeError):
    """rsync is missing or failed; the message has its output."""

    exit_code = 2


@dataclass
class Pulled:
    """The result: run ids fetched; refused ones and why; how many were here, and how many are unfinished there."""

    fetched: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    present: int = 0
    unfinished: int = 0


def pull(source: str, *, profiles: bool = True) -> Pulled:
    """Fetch the complete runs of `source` (host:folder, or a folder) that are not here, and its studies' indices that are newer.

    A run is moved into place when it is fetched and its records are consistent; after an interrupted pull the next
    one continues.

    Args:
        profiles: fetch profiles too: some megabytes a rank.

    Raises:
        PullError: rsync is missing, or could not read the source.
    """
    source = source.rstrip("/")
    done = Pulled()
    paths.runs().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".pull-", dir=paths.results()) as folder:
        scratch = Path(folder)
        only_status = ["--include=*/", "--include=status.json", "--exclude=*", "--prune-empty-dirs"]
        _rsync([*only_status, f"{source}/runs/", f"{scratch}/look/"])
        wanted = []
        for run in sorted((scratch / "look").glob("*")):
            if (read_json(run / "status.json") or {}).get("state") != "complete":
                done.unfinished += 1
            elif state(paths.runs() / run.name) == "complete":
                done.present += 1
            else:
                wanted.append(run.name)
        if wanted:
            (scratch / "wanted").write_text("".join(f"{name}\n" for name in wanted))
            left = [f"--exclude=/*/{item}" for item in (*LEFT_THERE, *(() if profiles else (f"{PROFILE}/",)))]
            _rsync([*left, f"--files-from={scratch / 'wanted'}", f"{source}/runs/", f"{scratch}/runs/"])
        for name in wanted:
            arrived = scratch / "runs" / name
            try:
                verify(arrived)
            except Refused as error:
                done.refused[name] = str(error)
                continue
            _settle(arrived, paths.runs() / name)
            done.fetched.append(name)
        (paths.results() / "studies").mkdir(exist_ok=True)
        _rsync(["--ignore-missing-args", "--update", f"{source}/studies/", f"{paths.results() / 'studies'}/"])
    return done


def _settle(arrived: Path, place: Path) -> None:
    """Move a run into place; an incomplete one there is replaced."""
    if place.exists():
        if state(place) == "running":
            raise PullError(f"{place.name} is being run here: wait for it, or end it")
        shutil.rmtree(place)
    arrived.rename(place)


def _rsync(arguments: list[str]) -> None:
    # Three connections in all: many centres require a second factor for each.
    # --protect-args: the remote shell does not interpret a folder's name. Links are not followed or made.
    command = ["rsync", "--recursive", "--times", "--protect-args", "--no-motd", *arguments]
    if not shutil.which("rsync"):
        raise PullError("no rsync here: install it (apt-get install rsync, or your system's package)")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise PullError(f"rsync ended with exit code {done.returncode}:\n{done.stderr.strip()}")
