"""torchrun as it is, but its ranks start warm; it ends with the launcher that started it, and SIGUSR1 goes through to the ranks.

torchrun itself would die of that signal, its ranks orphaned. Started by srun, one on each node, it starts the node's warm
process first, and is itself the first that is forked from it.
"""

import contextlib
import os
import signal
import sys
import threading
import time

from hpc_utils import provenance
from hpc_utils.launch import warm
from hpc_utils.launch.lifeline import PARENT, die_with_parent

POLL = 0.1  # s between looks for ranks to tell
RANK = "hpc_utils.launch.rank"
ONE_NODE = "one-node"


def _pass_on() -> None:
    """Each SIGUSR1 to the ranks that are there; to the first that come, if it was early."""
    import psutil

    while True:
        signal.sigwait({signal.SIGUSR1})
        while not (ranks := [child for child in psutil.Process().children() if RANK in child.cmdline()]):
            time.sleep(POLL)
        for rank in ranks:
            with contextlib.suppress(psutil.NoSuchProcess):
                rank.send_signal(signal.SIGUSR1)


def _rendezvous_on_one_node() -> None:
    """The rendezvous ONE_NODE: nobody else is waited for; torchrun's own (c10d) sleeps up to 0.3 s beforehand."""
    from torch.distributed.elastic.rendezvous import rendezvous_handler_registry
    from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous

    class OneNode(StaticTCPRendezvous):
        use_agent_store = True  # the ranks meet at the same store

        def get_backend(self):
            return ONE_NODE

        def next_rendezvous(self):
            super().next_rendezvous()  # its store takes a port that is free
            self.master_port = self._store.port
            return super().next_rendezvous()

    rendezvous_handler_registry.register(ONE_NODE, lambda given: OneNode("127.0.0.1", 0, 0, 1, given.run_id, 600))


if __name__ == "__main__":
    # Blocked here and, inherited, in the ranks until they listen: none is lost and none ends them.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    die_with_parent()
    arguments = sys.argv[1:]
    if RANK in arguments and os.environ.get(warm.SERVER) != warm.OFF:
        if provenance.start == "cold":
            os.environ[warm.SERVER], _ = warm.start(os.environ)
            command = warm.python("-m", "hpc_utils.launch.torchrun", *arguments)
            os.execv(command[0], command)  # the warm process stays, a child of this one
        number = arguments.index(RANK) - 1  # of its -m
        arguments[number:number] = ["--no-python", *warm.python()]
    os.environ[PARENT] = str(os.getpid())
    threading.Thread(target=_pass_on, daemon=True).start()
    if "--rdzv-backend=static" in arguments:  # c10d, which finds out how many nodes there are, takes longer with each
        arguments[:0] = [f"--node-rank={os.environ['SLURM_NODEID']}"]
    from torch.distributed.run import main

    _rendezvous_on_one_node()
    main(arguments)
