"""The runs of a study on this machine, one repeat after another."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hpc_utils import signals
from hpc_utils.plural import counted

from . import measure
from .local import Place
from .measure import show
from .study import plan
from .target import Target


class RunsFailed(RuntimeError):
    """Some runs of a study are not complete; the message names them."""

    exit_code = 1


def execute(
    name: str,
    target: Target,
    *,
    cold: bool = False,
    further: Mapping[str, int] = MappingProxyType({}),
    **again: Any,
) -> str:
    """Run the missing runs on this machine, and with `again` those of `Plan.to_do`; return the study's name. `further`: as of `plan`.

    Those of a repeat take turns (`turns`), one repeat after another. A run that fails does not end the study; one that another
    process here measures is waited for. All ranks are forked from one forkserver, unless `cold`.

    Raises:
        StudyError: as `plan`, or no run is possible here.
        RunsFailed: after all others are complete.
        RunStopped: a signal stopped this process; the other runs are not started.
    """
    study_plan = plan(name, target, further=further)
    study_plan.require_points("this machine")
    requests = study_plan.requests
    todo = study_plan.to_do(**again)
    complete = sum(request.state == "complete" for request in requests)
    show(
        f"{study_plan.study.title}: {counted(len(requests), 'run')}, {complete} complete, {len(todo)} to do",
        *study_plan.impossible,
    )
    if not (again.get("redo") or again.get("outdated")):
        show(*study_plan.changes())
    study_plan.write()
    begun = time.monotonic()
    failed = []
    done = 0
    place = Place(cold=cold)
    for group in measure.groups(todo):
        pace = (time.monotonic() - begun) / done if done else 0.0
        left = f", about {pace * (len(todo) - done) / 60:.1f} min left" if pace else ""
        several = len(group) > 1
        last = f" to {done + len(group)}" if several else ""
        what = f"in turn: repeat {group[0].config.repeat}" if several else group[0].run_id
        show(f"[{done + 1}{last} of {len(todo)}{left}] {what}")
        for request, error in measure.together(group, place) if several else measure.alone(group[0], place):
            if error.exit_code == signals.exit_code(signal.SIGTERM):  # before the run could be stopped in order
                raise error
            failed.append((request, str(error).partition("\n")[0]))
            show(f"not complete: {error}")
        done += len(group)
    if failures := [f"  {why}" for request, why in failed if request.state != "complete"]:
        summary = (
            f"{len(failures)} not complete, of {counted(len(todo), 'run')}; correct the cause, then repeat the command "
            f"(`hpc report {study_plan.name}` shows the others):"
        )
        raise RunsFailed("\n".join([summary, *failures]))
    return study_plan.name
