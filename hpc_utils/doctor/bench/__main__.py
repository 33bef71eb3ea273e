"""`hpc bench`, as every rank runs it; rank 0 prints the table and writes the record under results/probes.

torchrun ... -m hpc_utils.doctor.bench allreduce [--repeats 5] [--largest 256] [--copy FILE]
torchrun ... -m hpc_utils.doctor.bench MODULE [--repeats 5] [--dataset cifar10] [--copy FILE]

Each is a module with the functions `measure` and `table`; MODULE: a companion's.
"""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from hpc_utils import datasets, launcher, provenance
from hpc_utils.config import ConfigError, RunConfig
from hpc_utils.doctor import process
from hpc_utils.doctor.bench import GRACE, LIMIT, SECONDS
from hpc_utils.records import atomic, probes

COLLECTIVE = 120.0  # s that ranks wait for each other: also for one that copies a data set


@dataclass(frozen=True)
class Options:
    """Options of the ranks' command line (`process.parse`).

    Attributes:
        repeats: of each measurement, interleaved. largest: message of an all-reduce in MiB. dataset: that is read.
        copy: file to which rank 0 also writes the record, for the launcher.
        launcher: of a loop (`hpc_utils.launcher`), which started these ranks; the record is kept under its backend's name.
    """

    repeats: int = 5
    largest: int = 256
    dataset: str = "cifar10"
    copy: str = ""
    launcher: str = ""


def main(arguments: list[str]) -> int:
    """Measure and write the record; the exit code. If it is not 0, the launcher ends all ranks."""
    benchmark = arguments[0]
    options = process.parse(Options, arguments[1:])
    own_launcher = launcher.load_launcher(options.launcher) if options.launcher else None
    if own_launcher:
        os.environ["RANK"] = str(own_launcher.join().rank)
    console = process.start(LIMIT, GRACE)
    # Before ranks are pinned: the identity counts the usable cores.
    record = {"hardware_id": provenance.hardware_id()}
    console.progress("nothing yet, the ranks start")
    module = importlib.import_module(benchmark if "." in benchmark else f"hpc_utils.doctor.bench.{benchmark}")
    from hpc_utils.train.ranks import setup  # torch, which takes seconds

    try:
        config = RunConfig(
            batch_per_device=1, collective_timeout=COLLECTIVE, device="cpu" if own_launcher else "auto"
        )
        with setup(config, own_launcher) as ranks:
            if ranks.oversubscribed:
                console.line("more ranks than cores: the times include waiting for a core")
            meter = process.LoadMeter(ranks)
            record |= module.measure(ranks, seconds=SECONDS, console=console, **vars(options))
            for line in module.table(record):
                console.line(line)
            meter.warn(console.line)
            if ranks.is_main:
                record["provenance"] = provenance.collect()
                kind = ranks.backend if own_launcher else benchmark.rpartition(".")[2]
                name = f"{record['hardware_id']}-{ranks.nodes}x{ranks.ranks_per_node}"
                console.line(f"record: {probes.keep(kind, name, record)}")
                if options.copy:
                    atomic.write_json(Path(options.copy), record)
            ranks.barrier()  # end together: launchers log errors if the store ends before other ranks
            ranks.settle()
        if own_launcher:
            own_launcher.leave()
    except (ConfigError, datasets.DataError) as error:
        console.line(f"error: {error}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
