"""`hpc bench`, as every rank runs it; rank 0 prints the table and writes the record under results/probes.

    torchrun ... -m hpc_utils.doctor.bench allreduce [--repeats 5] [--largest 256] [--copy FILE]
    torchrun ... -m hpc_utils.doctor.bench storage [--repeats 5] [--dataset cifar10] [--copy FILE]

`--copy` has rank 0 also write the record there, for the launcher.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import NoReturn

from hpc_utils import datasets, provenance
from hpc_utils.config import ConfigError, RunConfig
from hpc_utils.doctor import process
from hpc_utils.doctor.bench import GRACE, LIMIT, SECONDS
from hpc_utils.records import atomic, probes

COLLECTIVE = 120.0  # s that ranks wait for each other: also for one that copies a data set


def main(arguments: list[str]) -> int:
    """Measure and write the record; the exit code, which tells the launcher to end all ranks if it is not 0."""
    args = _parse(arguments)
    signal.signal(signal.SIGTERM, leave)  # so that copies of data sets are removed
    console = process.start(LIMIT, GRACE)
    # Before ranks are pinned: the identity counts the usable cores.
    record = {"hardware_id": provenance.hardware_id()}
    console.progress("nothing yet, the ranks start")
    from hpc_utils.doctor.bench import allreduce, storage
    from hpc_utils.train.ranks import setup  # torch, which takes seconds

    try:
        with setup(RunConfig(batch_per_device=1, collective_timeout=COLLECTIVE)) as ranks:
            if ranks.oversubscribed:
                console.line("more ranks than cores: the times include waiting for a core")
            shared = {"repeats": args.repeats, "seconds": SECONDS, "console": console}
            if args.what == "allreduce":
                limit = provenance.HardwareId.parse(record["hardware_id"]).link_gbit
                record |= allreduce.measure(ranks, largest=args.largest, link_gbit=limit, **shared)
            else:
                record |= storage.measure(ranks, dataset=args.dataset, **shared)
            for line in {"allreduce": allreduce.table, "storage": storage.table}[args.what](record):
                console.line(line)
            if ranks.is_main:
                record |= {"provenance": provenance.collect()}
                name = f"{record['hardware_id']}-{ranks.nodes}x{ranks.ranks_per_node}"
                console.line(f"record: {probes.keep(args.what, name, record)}")
                if args.copy:
                    atomic.write_json(args.copy, record)
            ranks.barrier()  # end together: launchers log errors if the store ends before other ranks
            ranks.settle()
    except (ConfigError, datasets.DataError) as error:
        console.line(f"error: {error}")
        return error.exit_code
    return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--repeats", type=int, default=5, help="of each measurement, interleaved")
    shared.add_argument("--copy", type=Path, help="also write the record there")
    parser = argparse.ArgumentParser(prog="hpc_utils.doctor.bench", description="How fast are links and storage?")
    kinds = parser.add_subparsers(dest="what", required=True)
    link = kinds.add_parser("allreduce", parents=[shared], help="all-reduce over message sizes")
    link.add_argument("--largest", type=int, default=256, help="message in MiB")
    files = kinds.add_parser("storage", parents=[shared], help="the data set from the places that a job can use")
    files.add_argument("--dataset", default="cifar10", help="that is here")
    return parser.parse_args(arguments)


def leave(*_: object) -> NoReturn:
    sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
