"""torchrun, with four additions: its ranks start warm, it ends with the launcher that started it, SIGUSR1 (which would kill
torchrun) is forwarded to the ranks, and ranks that failed are listed in `logs/failed<node>.json`.

Started by srun, one on each node, it first starts the node's warm process, and becomes its first fork.
"""

import contextlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

from hpc_utils import provenance, workspace
from hpc_utils.launch import warm
from hpc_utils.launch.process_tree import die_with_parent

POLL = 0.1  # s between looks for ranks to signal
RANK = "hpc_utils.launch.rank"
ONE_NODE = "one-node"


def _pass_on() -> None:
    """Send each SIGUSR1 to all ranks; if there are none yet, to the first ones."""
    import psutil

    while True:
        signal.sigwait({signal.SIGUSR1})
        while not (ranks := [child for child in psutil.Process().children() if RANK in child.cmdline()]):
            time.sleep(POLL)
        for rank in ranks:
            with contextlib.suppress(psutil.NoSuchProcess):
                rank.send_signal(signal.SIGUSR1)


def _rendezvous_on_one_node() -> None:
    """Register the rendezvous ONE_NODE, which waits for no other node; torchrun's own (c10d) sleeps up to 0.3 s."""
    from torch.distributed.elastic.rendezvous import rendezvous_handler_registry
    from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous

    class OneNode(StaticTCPRendezvous):
        use_agent_store = True  # the ranks meet at the same store

        def get_backend(self):
            return ONE_NODE

        def next_rendezvous(self):
            super().next_rendezvous()  # its store takes a free port
            self.master_port = self._store.port
            return super().next_rendezvous()

    rendezvous_handler_registry.register(ONE_NODE, lambda given: OneNode("127.0.0.1", 0, 0, 1, given.run_id, 600))


def _run(arguments: list[str]) -> None:
    """torchrun's own main, without the folder that it leaves; ranks that failed are listed in the run's folder, the first one first."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main

    run = workspace.launch().run
    try:
        with tempfile.TemporaryDirectory(prefix="hpc-torchrun-") as logs:
            main([f"--log-dir={logs}", *arguments])
    except ChildFailedError as error:
        first, _ = error.get_first_failure()
        ranks = sorted(error.failures, key=lambda rank: rank != first)
        if run:
            failed = [{"rank": rank, "exit_code": error.failures[rank].exitcode} for rank in ranks]
            node = os.environ.get("SLURM_NODEID", "0")
            with contextlib.suppress(OSError):
                (Path(run) / "logs" / f"failed{node}.json").write_text(json.dumps(failed))
        sys.exit(str(error))


if __name__ == "__main__":
    # Blocked here and, inherited, in the ranks until they listen: no signal is lost or ends them.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    arguments, record = sys.argv[1:], workspace.launch()
    die_with_parent(record.parent)
    if RANK in arguments and record.warm != warm.OFF:
        if provenance.start == "cold":
            name, _ = warm.start()  # the warm process stays, a child of this one
            command = warm.python("-m", "hpc_utils.launch.torchrun", *arguments)
            os.execve(command[0], command, os.environ | replace(record, warm=name).variables)
        number = arguments.index(RANK) - 1  # of its -m
        arguments[number:number] = ["--no-python", *warm.python()]
    os.environ.update(workspace.starting(record))  # torchrun passes its own environment to the ranks
    threading.Thread(target=_pass_on, daemon=True).start()
    if "--rdzv-backend=static" in arguments:  # c10d discovers the nodes, which takes longer with each
        arguments[:0] = [f"--node-rank={os.environ['SLURM_NODEID']}"]
    _rendezvous_on_one_node()
    _run(arguments)
