"""What every rank's process of a probe does first: it ends with its launcher, and keeps the terminal to itself."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import tempfile
import threading
import time
from typing import NoReturn, TextIO

from hpc_utils import workspace


def begin(seconds: float, grace: float = 0.0) -> tuple[TextIO, TextIO]:
    """End this process with its launcher, and in any case after `seconds`; (out, err), which libraries do not print to.

    With `grace` it gets SIGTERM so many seconds before, to tidy up.
    """
    parent = workspace.launch().parent or os.getppid()  # it may be gone by now
    out, err = _own_streams()
    threading.Thread(target=_end_with, args=(parent, grace), daemon=True).start()
    faulthandler.dump_traceback_later(seconds, exit=True, file=err)  # also where no Python runs any more
    return out, err


def _own_streams() -> tuple[TextIO, TextIO]:
    """The terminal for us alone: what libraries print (gloo, NCCL) goes to a file that nobody needs."""
    out, err = (os.fdopen(os.dup(stream), "w", encoding="utf-8") for stream in (1, 2))
    with tempfile.TemporaryFile() as noise:
        for stream in (1, 2):
            os.dup2(noise.fileno(), stream)
    faulthandler.enable(err)
    sys.stderr = err
    return out, err


def _end_with(parent: int, grace: float) -> NoReturn:
    """Never outlive the launcher, whatever hangs."""
    while os.getppid() == parent:
        time.sleep(0.5)
    if grace:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace)
    os._exit(1)
