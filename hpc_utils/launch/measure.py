"""Makes runs, of a study or of one job: those that take turns with each other together, the others alone."""

from __future__ import annotations

import itertools
import socket
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from signal import Signals

from hpc_utils import signals
from hpc_utils.plural import counted
from hpc_utils.records import ClaimedElsewhere, claim

from . import local, turns
from .local import Place
from .request import Request

Failure = tuple[Request, local.RunFailed | ClaimedElsewhere]


def groups(todo: Sequence[Request]) -> Iterator[list[Request]]:
    """The runs of a repeat that take turns together, then its others one by one."""
    for _, repeat in itertools.groupby(todo, key=lambda run: run.config.repeat):
        runs = list(repeat)
        in_turn = [run for run in runs if turns.takes_turns(run)]
        if len(in_turn) > 1:
            yield in_turn
            runs = [run for run in runs if run not in in_turn]
        yield from ([run] for run in runs)


def together(group: Sequence[Request], place: Place) -> Iterator[Failure]:
    """Make the runs in turn; then those alone that did not start beside the others, for lack of memory for example.

    Raises:
        RunStopped: a signal stopped them.
    """
    from tqdm import tqdm

    show(*sorted({request.warning for request in group} - {""}))
    with (
        local.lock_cores(group),
        signals.listen() as received,
        tqdm(desc="taking turns", unit="round", leave=False, disable=not sys.stderr.isatty()) as bar,
    ):

        def watch(number: int, rounds: int) -> None:
            bar.total, bar.n = rounds, number
            bar.refresh()

        session = turns.Session(received, place.host)
        lives = [
            (request, _life(request, place.part(request.layout, number), received, session.address))
            for number, request in enumerate(group)
        ]
        outcomes = session.run(lives, watch)
    errors = [(request, error) for request in group if (error := outcomes.get(request.run_id))]
    for _, error in errors:
        if received or not isinstance(error, local.RunFailed):
            raise error
    yield from errors
    left = [run for run in group if run.run_id not in outcomes and (run.redo or run.state != "complete")]
    if left:
        show(f"{counted(len(left), 'run')} could not start beside the others: measured alone")
    for run in left:
        yield from alone(run, place)


def _life(request: Request, place: Place, received: Sequence[Signals], address: str) -> Generator[None, float, Path]:
    local.require_startable(request, place)
    return (yield from local.attend(request, received, place, turns=address))


def alone(request: Request, place: Place) -> Iterator[Failure]:
    """Make one run, unless another process completes it meanwhile; one on this machine is waited for.

    Raises:
        RunStopped: a signal stopped it.
    """
    try:
        with local.follow(request, lines=False) as watch:
            local.run(request, place.part(request.layout, 0), watch=watch)
    except local.AlreadyComplete:
        return
    except local.RunStopped:
        raise
    except local.RunFailed as error:
        yield request, error
    except ClaimedElsewhere as error:
        _, owner = claim.current(request.path)
        if owner and owner["host"] != socket.gethostname():
            yield request, error
            return
        show("waiting: another process measures it")
        time.sleep(0.5)
        while request.state == "running":
            time.sleep(0.5)
        yield from alone(replace(request, redo=False), place)


def show(*lines: str) -> None:
    """Print lines about the progress, to stderr."""
    for line in lines:
        print(line, file=sys.stderr, flush=True)
