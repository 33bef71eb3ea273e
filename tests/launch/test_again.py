"""A run that is stopped again and again gets on each time, or says that it does not."""

from __future__ import annotations

from .conftest import TRAIN

TOLD = "import os, signal; os.kill(os.getpid(), signal.SIGUSR1)"


def test_stopped_twice_at_the_same_step_is_not_asked_to_be_run_again(bench) -> None:
    """Else a job whose limit is too short for a single step would go back into its queue for ever."""
    notebook = bench.notebook(TOLD, TRAIN)
    first = bench.hpc("run", notebook, "-p", "parallel=none")
    assert first.code == 75, first.err
    second = bench.hpc("run", notebook, "-p", "parallel=none")
    assert second.code == 1
    assert "not one step further than the last time" in second.err
    assert bench.status()["state"] == "stopped", "nothing is lost"
