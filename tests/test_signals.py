"""Signals are heard from the first moment on, and afterwards everything is as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from signal import SIGTERM, SIGUSR1

import pytest

from hpc_utils import signals


@pytest.fixture(autouse=True)
def unchanged() -> Iterator[None]:
    """Each test leaves handlers and mask as it found them."""
    before = {number: signal.getsignal(number) for number in signals.HANDLED}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def test_signals_are_heard_and_do_nothing_else() -> None:
    before = [signal.getsignal(number) for number in signals.HANDLED]
    with pytest.raises(ValueError), signals.listen() as heard:
        assert signals.strongest(heard) is None
        os.kill(os.getpid(), SIGTERM)
        os.kill(os.getpid(), SIGUSR1)
        assert sorted(heard) == [SIGUSR1, SIGTERM]
        assert signals.strongest(heard) == SIGTERM, "who cancels does not want it run again"
        raise ValueError
    assert [signal.getsignal(number) for number in signals.HANDLED] == before


def test_what_came_before_listening_is_heard_once() -> None:
    signals.remember()
    os.kill(os.getpid(), SIGUSR1)
    with signals.listen() as heard:
        assert heard == [SIGUSR1]
    with signals.listen() as again:
        assert again == []


def test_another_thread_hears_nothing_and_harms_nothing() -> None:
    told: list[list] = []

    def listen() -> None:
        signals.remember()
        with signals.listen() as heard:
            told.append(heard)

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert told == [[]]


def test_a_signal_waits_for_a_process_that_is_still_starting() -> None:
    code = "import sys; sys.stdin.read(); from hpc_utils import signals\nwith signals.listen() as heard: print(heard)"
    with signals.waiting():
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    child.send_signal(SIGUSR1)  # long before its first line
    out, _ = child.communicate("")
    assert child.returncode == 0
    assert "SIGUSR1" in out
    assert SIGUSR1 not in signal.pthread_sigmask(signal.SIG_BLOCK, ()), "here it arrives as before"


def test_a_stop_has_its_exit_code_and_is_no_exception_that_a_user_catches() -> None:
    again, final = (signals.Stopped(number, 3, 12) for number in signals.HANDLED)
    assert (again.exit_code, final.exit_code) == (75, 143)
    assert not isinstance(again, Exception)


def test_one_that_comes_while_python_ends_does_not_change_the_exit_code() -> None:
    """A launcher repeats USR1 for some seconds, and the run may be complete by then."""
    code = """
        import os, signal
        from hpc_utils import signals

        class Late:
            def __del__(self):
                os.kill(os.getpid(), signal.SIGUSR1)

        signals.remember()
        late = Late()  # dies with the modules, when Python no longer handles signals
    """
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(code)], timeout=60).returncode == 0
