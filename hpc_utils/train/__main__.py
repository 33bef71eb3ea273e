"""`python -m hpc_utils.train [name=value ...]`: one run from the command line, directly or under the launcher of its ranks.

With `--check` first, only the user's workload is imported and its `workload_args` are compared with its signature.
"""

from __future__ import annotations

import os
import sys

from hpc_utils import launcher
from hpc_utils.config import ConfigError, RunConfig, parse_assignments
from hpc_utils.datasets import DataError
from hpc_utils.signals import Stopped, remember

from .resolve import builder
from .run import train
from .workload import WorkloadError


def main(arguments: list[str]) -> int:
    """Train with the given parameters. Exit code 2: invalid parameters; 75 or 143: stopped by a signal, with a checkpoint."""
    only_check = arguments[:1] == ["--check"]
    try:
        config = RunConfig(**parse_assignments(arguments[only_check:]))
        if only_check:
            builder(config)
            return 0
        loop_launcher = launcher.find_launcher(config.workload)
        train(config)
        if loop_launcher:
            loop_launcher.leave()
    except (ConfigError, DataError, WorkloadError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except Stopped as stopped:
        print(f"{stopped}; the same command continues it", file=sys.stderr)
        return stopped.exit_code
    return 0


if __name__ == "__main__":
    remember()
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # see `Ranks.settle`
