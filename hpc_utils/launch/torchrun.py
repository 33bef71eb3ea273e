"""torchrun as it is, but ended with the launcher that started it, and SIGUSR1 goes through to the ranks.

torchrun itself would die of that signal, its ranks orphaned.
"""

import contextlib
import os
import signal
import threading
import time

from hpc_utils.launch.lifeline import PARENT, die_with_parent

POLL = 0.1  # s between looks for ranks to tell


def _pass_on() -> None:
    """Each SIGUSR1 to the ranks that are there; to the first that come, if it was early."""
    import psutil

    while True:
        signal.sigwait({signal.SIGUSR1})
        while not (ranks := psutil.Process().children()):
            time.sleep(POLL)
        for rank in ranks:
            with contextlib.suppress(psutil.NoSuchProcess):
                rank.send_signal(signal.SIGUSR1)


if __name__ == "__main__":
    # Blocked here and, inherited, in the ranks until they listen: none is lost and none ends them.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    die_with_parent()
    os.environ[PARENT] = str(os.getpid())
    threading.Thread(target=_pass_on, daemon=True).start()
    from torch.distributed.run import main

    main()
