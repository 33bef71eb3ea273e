"""The compute profile of a model, measured in a process of its own as a rank's is: `hpc bench compute`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hpc_utils import paths
from hpc_utils.config import ConfigError, RunConfig
from hpc_utils.launch.lifeline import die_with_parent, end_tree
from hpc_utils.launch.probe import MARK, environment
from hpc_utils.records.compute_profile import not_plain
from hpc_utils.records.folder import read_json


class NoProfile(RuntimeError):
    """The measuring process ended without a profile."""

    exit_code = 1


def measure(config: RunConfig, batches: Sequence[int], repeats: int) -> Path:
    """Measure here, on one device, and return the record's path; the process says on stderr how far it is.

    Raises:
        ConfigError: there is nothing to compute, or no batch to compute it on.
        DataError: the data set is not here.
        NoProfile: the process ended without one; what it printed says why.
    """
    from hpc_utils.launch.request import require_data

    if turned := not_plain(config):
        raise ConfigError(f"{', '.join(turned)}: a compute profile is of the plain step")
    if not batches or min(batches) < 1 or repeats < 1:
        raise ConfigError(f"batches {list(batches)}, {repeats} repeats: at least one of each, from 1 on")
    if ":" not in config.workload:
        require_data(config.dataset, paths.data())
    with tempfile.TemporaryDirectory(prefix="hpc-compute-") as folder:
        asked, answer = Path(folder) / "asked.json", Path(folder) / "answer.json"
        asked.write_text(
            json.dumps({"config": config.model_dump(), "batches": sorted(set(batches)), "repeats": repeats})
        )
        process = subprocess.Popen(
            [sys.executable, "-m", "hpc_utils.launch.compute", str(asked), str(answer)],
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is ours to deal with
        )
        try:
            process.wait()
        finally:
            end_tree(process, (MARK, folder))
        found = read_json(answer)
        if not found:
            raise NoProfile("no profile was measured: what the process printed says why")
        return Path(found)


def main(asked: Path, answer: Path) -> int:
    """In the process that measures."""
    die_with_parent()
    from hpc_utils.doctor.bench import compute

    said = json.loads(asked.read_text())
    try:
        path = compute.profile(
            RunConfig(**said["config"]), said["batches"], said["repeats"], lambda line: print(line, file=sys.stderr)
        )
    except ValueError as error:
        if not hasattr(error, "exit_code"):
            raise
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    answer.write_text(json.dumps(str(path)))
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
