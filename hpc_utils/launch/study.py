"""Studies: matrices of runs as data, planned, run in interleaved order, skipped where complete.

A study file (`jobs/studies/<name>.toml`) has `[parameters]` shared by all runs and `[[series]]`, each with a
notebook, a list of `ranks`, its own `parameters` and a `matrix` of values to combine; `[ladder]` is a plain loop and the
changes that make it fast (`launch.ladder`), `ladder_of` the study whose ladder it takes; `[targets]` says what it wants to
reach.
"""

from __future__ import annotations

import collections
import itertools
import random
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from hpc_utils import paths, signals, toml_config
from hpc_utils.config import ConfigError, plain
from hpc_utils.records import ClaimedElsewhere, atomic, study_index
from hpc_utils.records.load import Refused, verify
from hpc_utils.toml_config import Strict

from . import local, warm
from .ladder import Ladder
from .place import Place
from .request import Request, prepare
from .watch import follow


class StudyError(ValueError):
    """A study file is missing or wrong; names the file, the key and what is allowed."""

    exit_code = 2


class RunsFailed(RuntimeError):
    """A study was run to its end, but some of its runs are not complete; the message names them."""

    exit_code = 1


class Series(Strict):
    """Runs that differ in rank count and in the values of `matrix`, at most `ranks_per_node` on a node even where more fit."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    notebook: str
    ranks: list[int] = Field(min_length=1)
    ranks_per_node: int | None = Field(None, ge=1)
    parameters: dict[str, Any] = Field({})
    matrix: dict[str, list[Any]] = Field({})


class Chapter(Strict):
    """A chapter of the report; with `run`, the executed notebook of the first run that matches."""

    notebook: str
    run: dict[str, Any] | None = None


class Targets(Strict):
    """What the study wants to reach, where that is not the usual: `analyze.targets.Targets` has meanings and defaults."""

    strong_efficiency: float | None = Field(None, gt=0)
    strong_ranks: int | None = Field(None, ge=2)
    weak_variation: float | None = Field(None, gt=0)
    weak_ranks: int | None = Field(None, ge=2)
    sensitivity_gain: float | None = Field(None, gt=0)
    accuracy_margin: float | None = Field(None, gt=0)
    loss_margin: float | None = Field(None, gt=0)


class Study(Strict):
    """A study file's content."""

    title: str
    about: str = ""
    repeats: int = Field(1, ge=1)
    parameters: dict[str, Any] = Field({})
    series: list[Series] = Field([])
    ladder: Ladder | None = None
    ladder_of: str = ""
    chapters: list[Chapter] = Field([])
    targets: Targets = Field(Targets())

    @model_validator(mode="after")
    def _runs_something(self) -> Study:
        if self.ladder and self.ladder_of:
            raise ValueError("a study has a [ladder] or a `ladder_of`, not both")
        if not (self.series or self.ladder or self.ladder_of):
            raise ValueError("nothing to run: a study has [[series]], a [ladder] or a `ladder_of`")
        return self


@dataclass(frozen=True)
class Point:
    """One run of a study: where it belongs, and the request that starts it."""

    series: str
    ranks: int
    repeat: int
    request: Request


@dataclass(frozen=True)
class NotApplicable:
    """A point that a place cannot run, and why."""

    series: str
    ranks: int
    values: dict[str, Any]
    why: str


@dataclass(frozen=True)
class Plan:
    """All runs of a study at a place, and what cannot be run there."""

    name: str
    study: Study
    place: Place
    points: list[Point]
    not_applicable: list[NotApplicable]

    @property
    def requests(self) -> list[Request]:
        """The runs to make, in order: series may share some.

        One repeat after another, each in an order of its own, so that a drift of the machine's speed widens the intervals
        instead of favouring one configuration. The order is drawn from the repeat's number: it is always the same.
        """
        found = []
        for repeat, own in itertools.groupby(self.points, key=lambda point: point.repeat):
            points = list(own)
            found += random.Random(repeat).sample(points, len(points))
        return list({point.request.run_id: point.request for point in found}.values())

    @property
    def impossible(self) -> list[str]:
        """What cannot be run there, in words, a line for each reason."""
        found = collections.Counter((point.series, point.why) for point in self.not_applicable)
        return [f"{number} not applicable: {series}: {why}" for (series, why), number in found.items()]


def read(name: str) -> Study:
    """The study `name` of `jobs/studies`, or the study file at that path.

    Raises:
        StudyError: no such study, or a wrong file.
    """
    study = _file(name)
    if not study.ladder_of:
        return study
    if not (ladder := _file(study.ladder_of).ladder):
        raise StudyError(f"{name}: ladder_of: the study {study.ladder_of!r} has no [ladder]")
    return study.model_copy(update={"ladder": ladder})


def _file(name: str) -> Study:
    path = Path(name) if name.endswith(".toml") else paths.studies() / f"{name}.toml"
    try:
        return toml_config.read(path, Study, StudyError)
    except FileNotFoundError:
        known = sorted(p.stem for p in paths.studies().glob("*.toml"))
        raise StudyError(
            f"no study {name!r}: {toml_config.hint(name, known)}; a path to a .toml is good too"
        ) from None


def plan(name: str, place: Place | None = None, *, needs_data: bool = True) -> Plan:
    """The study's runs at `place` (by default this machine), each repeat's in the study file's order.

    Args:
        needs_data: its data set must be here, because runs are to be started.

    Raises:
        StudyError: no such study, a wrong file, or a series that asks for what can nowhere run; names it.
        DataError: its data set is not here.
    """
    study, place = read(name), place or Place.here()
    points: list[Point] = []
    missing: dict[tuple, NotApplicable] = {}
    for repeat in range(1, (place.repeats or study.repeats) + 1):
        for asked in _asked(study, place):
            why = place.refusal(asked.ranks, asked.parameters, asked.ranks_per_node)
            if why:
                missing[asked.key] = NotApplicable(asked.series, asked.ranks, asked.values, why)
                continue
            # A seed of its own for each repeat: the spread of accuracy is then the method's, not one draw's.
            given = asked.parameters | {"repeat": repeat, "seed": asked.parameters.get("seed", 0) + repeat - 1}
            notebook = paths.notebooks() / f"{asked.notebook}.ipynb"
            try:
                layout = place.layout(asked.ranks, asked.ranks_per_node)
                request = prepare(notebook, given, layout, hardware=place.hardware, needs_data=needs_data)
            except ConfigError as error:
                raise StudyError(f"{name}, series {asked.series!r}: {error}") from None
            points.append(Point(asked.series, asked.ranks, repeat, request))
    return Plan(Path(name).stem, study, place, points, list(missing.values()))


@dataclass(frozen=True)
class _Asked:
    """One configuration that a study asks for: `values` tell it from its series' others, `parameters` are all of its."""

    series: str
    notebook: str
    ranks: int
    ranks_per_node: int | None
    values: dict[str, Any]
    parameters: dict[str, Any]

    @property
    def key(self) -> tuple:
        return (self.series, self.ranks, *map(str, self.values.values()))


def _asked(study: Study, place: Place) -> Iterator[_Asked]:
    """All configurations of a repeat, in the order in which they are measured: the series', then the ladder's."""
    for series in study.series:
        shared = _shared(study, series.parameters, place)
        for values, ranks in _combinations(series, place, shared):
            yield _Asked(series.name, series.notebook, ranks, series.ranks_per_node, values, _given(shared | values))
    if study.ladder:
        ladder, shared = study.ladder, _plain_loop(study, place)
        for rung in ladder.rungs(lambda changes: _refusal(study, place, changes)):
            yield _Asked(
                rung.series, ladder.notebook, ladder.ranks, ladder.ranks_per_node, rung.changes,
                _given(shared | rung.changes),
            )  # fmt: skip


def _refusal(study: Study, place: Place, changes: Mapping[str, Any]) -> str:
    """Why the ladder's plain loop with these changes cannot be run there; empty if it can."""
    ladder = study.ladder
    given = _given(_plain_loop(study, place) | changes)
    return place.refusal(ladder.ranks, given, ladder.ranks_per_node)


def _plain_loop(study: Study, place: Place) -> dict[str, Any]:
    """The ladder's plain loop there: what the ladder says itself no place changes, or a step would change nothing."""
    return _shared(study, study.ladder.parameters, place) | study.ladder.parameters


def _shared(study: Study, own: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """What the study says, over it the series' or ladder's `own`, over it what the place says."""
    return study.parameters | own | place.parameters


def _given(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain(name, value) for name, value in parameters.items()}


def _combinations(series: Series, place: Place, shared: dict[str, Any]) -> Iterator[tuple[dict[str, Any], int]]:
    """Each of the series' combinations of matrix values, with each of its rank counts."""
    matrix = {name: place.matrix.get(name, values) for name, values in series.matrix.items()}
    alone = shared.get("parallel") == "none"  # one process everywhere
    counts = series.ranks if alone or not place.ranks else place.ranks
    for values in itertools.product(*matrix.values()):
        for ranks in counts:
            yield dict(zip(matrix, values, strict=True)), ranks


def write_index(found: Plan, name: str) -> None:
    """Leave `results/studies/<name>.json`, from which the reading side knows the study."""
    runs = [
        {"run_id": point.request.run_id, "series": point.series, "ranks": point.ranks, "repeat": point.repeat}
        | {"parameters": point.request.config.model_dump()}
        for point in found.points
    ]
    about = found.study.model_dump(include={"title", "about", "chapters"})
    about |= {"targets": found.study.targets.model_dump(exclude_none=True)}
    if found.study.ladder:
        about["ladder"] = found.study.ladder.index(lambda changes: _refusal(found.study, found.place, changes))
    about |= {"not_applicable": [asdict(point) for point in found.not_applicable]}
    atomic.write_json(study_index(name), about | {"name": name, "runs": runs})


def execute(name: str, place: Place | None = None, *, redo: bool = False, cold: bool = False) -> str:
    """Run what is missing on this machine, one run after another, with a line for each and the time left; the study's name.

    A run that fails does not take the others with it: overnight, one point of 24 must not cost 23. All ranks are forked from
    one warm process, unless `cold`.

    Raises:
        StudyError: as `plan`, or nothing of it can be run here.
        RunsFailed: after all others are complete.
        RunStopped: somebody asked this process to stop; the rest waits.
    """
    found = plan(name, place)
    name, study, requests = found.name, found.study, found.requests
    if not requests:
        raise StudyError("\n".join([f"{name}: nothing of it can be measured here", *found.impossible]))
    write_index(found, name)
    damaged = {request.run_id for request in requests if _refused(request)}
    todo = [r for r in requests if redo or r.state != "complete" or r.run_id in damaged]
    show = sys.stderr
    print(f"{study.title}: {len(requests)} runs, {len(requests) - len(todo)} complete", file=show)
    for line in found.impossible:
        print(line, file=show)
    begun, failed = time.monotonic(), []
    with warm.started(local.environment(), cold=cold or not todo) as warm_process:
        for number, request in enumerate(todo, 1):
            took = time.monotonic() - begun
            left = took / (number - 1) * (len(todo) - number + 1) if number > 1 else None
            remaining = f", about {_duration(left)} left" if left is not None else ""
            print(f"[{number}/{len(todo)}{remaining}] {request.run_id}", file=show, flush=True)
            try:
                with follow(request.run_id, lines=False) as watch:
                    local.run(request, redo=redo or request.run_id in damaged, warm_process=warm_process, watch=watch)
            except local.AlreadyComplete:
                continue
            except local.RunStopped:
                raise
            except (local.RunFailed, ClaimedElsewhere) as error:
                if error.exit_code == signals.exit_code(
                    signal.SIGTERM
                ):  # it came before the run could be stopped in order
                    raise
                failed.append(request.run_id)
                print(f"not complete: {error}", file=show, flush=True)
    if todo:
        print(f"{len(todo)} runs in {_duration(time.monotonic() - begun)}", file=show)
    if failed:
        raise RunsFailed(
            f"{len(failed)} of {len(todo)} runs are not complete: {', '.join(failed)}; the same command runs them "
            f"again, `hpc report {name}` draws what there is"
        )
    return name


def _refused(request: Request) -> bool:
    """Whether the run says complete, but its records cannot be true: it is measured again."""
    if request.state != "complete":
        return False
    try:
        verify(request.path)
    except Refused as error:
        print(f"refused {request.run_id}: {error}; it is measured again", file=sys.stderr)
        return True
    return False


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"
