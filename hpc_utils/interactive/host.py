"""The process that starts and ends a set of engines; its standard input is a pipe from the notebook's kernel.

    python -m hpc_utils.interactive.host FOLDER local|slurm ADDRESS N [option of sbatch ...]

When the input ends, because the notebook closes the set, or its kernel ends or is killed, it ends the engines (in
Slurm: the job) and the controller and deletes FOLDER. One byte on the input reports that all engines are connected; before
that, the end of one is a failure: it prints the reason and ends the others.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from hpc_utils import paths, provenance, workspace
from hpc_utils.launch import slurm_commands
from hpc_utils.launch.failure import tail
from hpc_utils.launch.process_tree import end_tree
from hpc_utils.records.atomic import write_text
from hpc_utils.records.folder import read_json
from hpc_utils.workspace import Launch

from .member import connection_file

GRACE = 2.0  # s that processes here get to end by themselves
LET_GO = 15.0  # s that Slurm gets to end the job
MEMBER = [sys.executable, "-m", "hpc_utils.interactive.member"]
# Modules and variables of the cluster file, as in training jobs (jobs/launch.sh).
JOB = """#!/bin/bash
environment=${{HPC_JOB_ENVIRONMENT:-{used}}}
[ ! -f "$environment" ] || source "$environment"
exec srun --cpu-bind=cores {task}
"""


class Failed(Exception):
    """The set cannot be started."""


class Host:
    """One set of engines and its end."""

    def __init__(self, folder: Path, where: str, address: str, n: int, options: list[str]) -> None:
        self.folder, self.where, self.address, self.n, self.options = folder, where, address, n, options
        self.processes: dict[str, subprocess.Popen] = {}
        self.job = ""
        self.complete = False  # all engines are connected
        self.launch = Launch(owner=str(folder))  # of every process of the set
        self.environment = slurm_commands.clean_environment() | {
            **self.launch.variables,
            "OMP_NUM_THREADS": "1",
            "IPYTHONDIR": str(folder / "ipython"),  # without the user's start-up files
        }

    def run(self) -> None:
        self._start_process("controller", "controller", str(self.folder), self.address)
        while not read_json(connection_file(self.folder, "engine")):
            self._watch(0.05)
        if self.where == "slurm":
            self._submit()
        else:
            self._start_engines()
        while True:
            self._watch(0.5)

    def end(self) -> None:
        """End all processes."""
        if self.job:
            slurm_commands.scancel([self.job])
            until = time.monotonic() + LET_GO
            with contextlib.suppress(slurm_commands.SlurmError):
                while not self._job_is_over() and time.monotonic() < until:
                    time.sleep(0.5)
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            end_tree(process, str(self.folder), GRACE)

    def _start_engines(self) -> None:
        """Start each on a core of its own, where there are enough."""
        cores = provenance.core_groups() if hasattr(os, "sched_setaffinity") else []
        for rank in range(self.n):
            own = ",".join(map(str, cores[rank])) if self.n <= len(cores) else ""
            self._start_process(f"engine {rank}", "engine", str(self.folder), str(rank), own)

    def _start_process(self, name: str, *arguments: str) -> None:
        with self._log(name).open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [*MEMBER, *arguments],
                env=self.environment | workspace.starting(self.launch),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _submit(self) -> None:
        """Submit one task an engine; at the latest the job's time limit ends it."""
        script = self.folder / "engines.sbatch"
        task = shlex.join([*MEMBER, "engine", str(self.folder)])
        script.write_text(JOB.format(used=shlex.quote(str(paths.jobs() / "environment.sh")), task=task))
        output = f"--output={self._log('job')}"
        options = ["--job-name=hpc-engines", f"--ntasks={self.n}", "--time=30", output, *self.options]
        self.job = slurm_commands.sbatch(options, script, environment=self.environment)
        write_text(self.folder / "job", self.job)

    def _watch(self, seconds: float) -> None:
        """Wait, and raise `Failed` if a process has ended before the set is complete."""
        self._listen(seconds)
        ended = [name for name, process in self.processes.items() if process.poll() is not None]
        if self.complete:
            return
        if ended:
            raise Failed(f"{ended[0]} ended at its start:\n{self._tail(ended[0])}")
        if self.job:
            self._listen(1)  # Slurm is not to be polled more often
            if self._job_is_over():
                raise Failed(f"job {self.job} ended at its start:\n{self._tail('job')}")

    def _job_is_over(self) -> bool:
        job = slurm_commands.jobs([self.job]).get(self.job)
        return job is None or job.state.is_over

    def _listen(self, seconds: float) -> None:
        """Wait; raises EOFError when the pipe from the kernel ends."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([sys.stdin], [], [], left)[0]:
                if not os.read(sys.stdin.fileno(), 1):
                    raise EOFError
                self.complete = True

    def _log(self, name: str) -> Path:
        return self.folder / f"{name.replace(' ', '-')}.log"

    def _tail(self, name: str) -> str:
        return tail(self._log(name)) or "(it wrote nothing)"


def _end_on_sigterm(*_: object) -> None:
    raise EOFError


def main(folder: str, where: str, address: str, n: str, *options: str) -> None:
    os.umask(0o077)
    signal.signal(signal.SIGTERM, _end_on_sigterm)
    host = Host(Path(folder), where, address, int(n), list(options))
    try:
        host.run()
    except EOFError:
        pass
    except (Failed, slurm_commands.SlurmError, OSError) as error:
        print(error)
    finally:
        host.end()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
