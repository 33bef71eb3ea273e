"""What every rank's process of a probe does first: it ends with its launcher, and keeps the terminal to itself."""

from __future__ import annotations

import faulthandler
import os
import sys
import tempfile
import threading
import time
from typing import NoReturn, TextIO

PARENT = "HPC_PARENT"  # the launcher's process, if it says so (hpc_utils.launch.lifeline)


def begin(seconds: float) -> tuple[TextIO, TextIO]:
    """End this process with its launcher, and in any case after `seconds`; (out, err), which libraries do not print to."""
    parent = int(os.environ.get(PARENT, os.getppid()))  # it may be gone by now
    out, err = _own_streams()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
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


def _end_with(parent: int) -> NoReturn:
    """Never outlive the launcher, whatever hangs."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
