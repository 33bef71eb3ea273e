"""What every rank runs; rank 0 prints what was measured, and keeps the record under results/probes.

    torchrun ... -m hpc_utils.probe.benchmark allreduce [--repeats 5] [--largest 256] [--copy FILE]
    torchrun ... -m hpc_utils.probe.benchmark storage [--repeats 5] [--dataset cifar10] [--copy FILE]

`--copy` has rank 0 write the record there too, for whoever started this and wants it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hpc_utils import datasets, provenance
from hpc_utils.config import ConfigError, RunConfig
from hpc_utils.probe import process
from hpc_utils.probe.benchmark import GRACE, LIMIT, SECONDS, allreduce
from hpc_utils.probe.benchmark.say import Say
from hpc_utils.records import atomic, probes

if TYPE_CHECKING:
    from hpc_utils.train.ranks import Ranks

COLLECTIVE = 120.0  # s that ranks wait for each other: for one that copies a data set, too


def main(arguments: list[str]) -> int:
    """Measure and keep the record; the exit code, which tells the launcher to end all ranks if it is not 0."""
    asked = _arguments(arguments)
    signal.signal(signal.SIGTERM, _leave)  # so that copies of data sets are removed
    out, err = process.begin(LIMIT, GRACE)
    say = Say(out, err) if int(os.environ.get("RANK", 0)) == 0 else Say()
    # Before ranks are pinned: the identity counts the cores that may be used.
    origin = {"hardware_id": provenance.hardware_id()}
    say.now("nothing yet, the ranks meet")
    from hpc_utils.train import ranks  # torch, which takes seconds

    try:
        with ranks.setup(RunConfig(batch_per_device=1, collective_timeout=COLLECTIVE)) as joined:
            if joined.oversubscribed:
                say.line("more ranks than cores: they wait for each other's, and the times say little of the machine")
            record = origin | _measured(asked, joined, say, origin["hardware_id"])
            if joined.is_main:
                _keep(asked, joined, record, say)
            joined.barrier()  # end together: launchers complain at length of a store that is gone before them
            joined.settle()
    except (ConfigError, datasets.DataError) as error:
        say.line(f"error: {error}")
        return error.exit_code
    return 0


def _keep(asked: argparse.Namespace, joined: Ranks, record: dict[str, Any], say: Say) -> None:
    record |= {"provenance": provenance.collect()}
    layout = f"{joined.nodes}x{joined.ranks_per_node}"
    path = probes.keep(asked.what, f"{record['hardware_id']}-{layout}", record)
    say.line(f"record: {path}")
    if asked.copy:
        atomic.write_json(asked.copy, record)


def _measured(asked: argparse.Namespace, joined: Ranks, say: Say, hardware: str) -> dict[str, Any]:
    if asked.what == "allreduce":
        bench = allreduce
        record = bench.measure(
            joined, repeats=asked.repeats, largest=asked.largest, seconds=SECONDS, say=say,
            link_gbit=provenance.HardwareId.parse(hardware).link_gbit,
        )  # fmt: skip
    else:
        from hpc_utils.probe.benchmark import storage as bench

        record = bench.measure(joined, repeats=asked.repeats, dataset=asked.dataset, seconds=SECONDS, say=say)
    for line in bench.table(record):
        say.line(line)
    return record


def _arguments(arguments: list[str]) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--repeats", type=int, default=5, help="measurements of each, interleaved")
    shared.add_argument("--copy", type=Path, help="write the record there too")
    parser = argparse.ArgumentParser(prog="hpc_utils.probe.benchmark", description="How fast are link and storage?")
    kinds = parser.add_subparsers(dest="what", required=True)
    link = kinds.add_parser("allreduce", parents=[shared], help="all-reduce over message sizes")
    link.add_argument("--largest", type=int, default=allreduce.LARGEST, help="message in MiB")
    storage = kinds.add_parser("storage", parents=[shared], help="the data set from the places a job can use")
    storage.add_argument("--dataset", default="cifar10", help="that is here")
    return parser.parse_args(arguments)


def _leave(*_: object) -> NoReturn:
    sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
