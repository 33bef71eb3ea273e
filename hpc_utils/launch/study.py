"""The plan of a study on a target: its runs in interleaved order, what is complete, and what cannot run there."""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import random
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from hpc_utils import datasets, paths, provenance, source_code, toml_config
from hpc_utils.config import ConfigError, RunConfig, plain
from hpc_utils.plural import counted
from hpc_utils.provenance import HardwareId
from hpc_utils.records import UnknownStudy, atomic, identity, read_study
from hpc_utils.records import study as indices
from hpc_utils.records.folder import read_json
from hpc_utils.records.load import Refused, digests, verify
from hpc_utils.records.study import NotApplicable, StudyIndex, StudyRun

from . import turns
from .measure import show
from .parameters import defaults, find_notebook
from .request import Layout, Request, prepare
from .study_file import Study, StudyError, read_study_file, study_path
from .target import PLAIN, UNCHANGED, Target


@dataclass(frozen=True)
class Point:
    """One run of a study: its series, and the request that starts it."""

    series: str
    ranks: int
    repeat: int
    request: Request


@dataclass(frozen=True)
class Plan:
    """All runs of a study on a target, the configurations that cannot run there, and the command that runs it.

    `name`: of its index, or its variant's.
    """

    name: str
    command: str
    study: Study
    target: Target
    points: list[Point]
    not_applicable: list[NotApplicable]
    file: Path

    @property
    def repeats(self) -> int:
        """The repeats that are asked for."""
        return self.target.repeats or self.study.repeats

    @property
    def requests(self) -> list[Request]:
        """The runs to make, in order: series may share some.

        One repeat after another, each in an order of its own, so that a drift of the machine's speed widens the
        intervals instead of favouring one configuration. The order is drawn from the repeat's number: it is always
        the same.
        """
        shuffled = []
        for repeat, group in itertools.groupby(self.points, key=lambda point: point.repeat):
            points = list(group)
            shuffled += random.Random(repeat).sample(points, len(points))
        return list({point.request.run_id: point.request for point in shuffled}.values())

    @property
    def impossible(self) -> list[str]:
        """What cannot be run there, a line for each reason, and the targets of the study file that no series can answer."""
        counts = collections.Counter((point.series, point.why) for point in self.not_applicable)
        lines = [f"{number} not applicable: {series}: {why}" for (series, why), number in counts.items()]
        answered = self.index.scaling_targets.model_dump()
        targets = self.study.targets.model_dump(include=self.study.targets.model_fields_set, exclude_none=True)
        return lines + [
            f"target left out: {name} = {value}: no series of this kind has it"
            for name, value in targets.items()
            if answered[name] is None
        ]

    def require_points(self, place: str) -> None:
        """StudyError if no run is possible on the target, which `place` names."""
        if not self.points:
            raise StudyError(f"{self.name}: no run is possible on {place}: {'; '.join(self.impossible)}")

    @property
    def index(self) -> StudyIndex:
        runs = [
            StudyRun(
                run_id=point.request.run_id,
                series=point.series,
                ranks=point.ranks,
                repeat=point.repeat,
                parameters=point.request.config.model_dump(),
            )
            for point in self.points
        ]
        return StudyIndex(
            name=self.name,
            command=self.command,
            setup=list(self.target.setup),
            title=self.study.title,
            about=self.study.about,
            chapters=self.study.chapters,
            targets=self.study.targets,
            precision=self.study.precision,
            ablation=self.study.ablation and self.study.ablation.index(_refusal(self.study, self.target)),
            not_applicable=self.not_applicable,
            runs=runs,
        )

    def write(self) -> None:
        """Write its index, and beside it what it was planned from: study file, cluster file, own code."""
        self.index.write()
        files = {self.file.name: self.file}
        if cluster := self.target.cluster_file:
            files[f"{indices.CLUSTERS}/{cluster.name}"] = cluster
        for workload in {run.config.workload for run in self.requests}:
            files |= source_code.own_files(workload)
        for notebook in {run.notebook for run in self.requests}:
            if notebook.parent != paths.notebooks() and notebook.is_relative_to(Path.cwd()):
                files[str(notebook.relative_to(Path.cwd()))] = notebook
        for place, file in files.items():
            atomic.write_text(indices.index_folder(self.name) / place, file.read_text())

    def changes(self) -> Iterator[str]:
        """Lines on complete runs of other code than is here now, on repeats of which a part is complete, and on runs of the
        former plan that are not in this one."""
        if outdated_runs := self._of_other_code():
            remedy = f"`{self.command} --outdated` measures them again"
            yield f"{counted(len(outdated_runs), 'complete run')}, measured by other code: {remedy}"
        in_turn = filter(turns.takes_turns, self.requests)
        for repeat, group in itertools.groupby(in_turn, key=lambda run: run.config.repeat):
            states = [run.state for run in group]
            if 0 < (complete := states.count("complete")) < len(states) and "running" not in states:
                remedy = f"`{self.command} --redo --only repeat={repeat}` measures all of them together"
                yield f"repeat {repeat}: {complete} of {len(states)} runs are complete, with which the others cannot take turns: {remedy}"
        with contextlib.suppress(UnknownStudy):
            former = read_study(self.name).run_ids.difference(run.run_id for run in self.requests)
            if left_out := sorted(run for run in former if (paths.runs() / run).exists()):
                names = f"{', '.join(left_out[:3])}{', ...' * (len(left_out) > 3)}"
                reason = f"study, parameters or code changed; `{self.command}` measures what replaces them"
                yield f"{counted(len(left_out), 'former run')} left out ({names}): {reason}"

    def selected(self, only: Mapping[str, Sequence[Any]]) -> list[Request]:
        """The runs whose series, layout, repeat and parameters have one of these values each; StudyError if none has."""
        points = [
            (
                point.request.run_id,
                point.request.config.workload_args
                | point.request.config.model_dump()
                | asdict(point.request.layout)
                | {"series": point.series, "ranks": point.ranks},
            )
            for point in self.points
        ]
        for option, chosen in only.items():
            name = option.removeprefix("workload_args.")
            names = {known for _, options in points for known in options}
            if name not in names:
                raise StudyError(f"{self.name}: its runs have no {option}: {toml_config.hint(name, names)}")
            values = list(dict.fromkeys(str(options.get(name)) for _, options in points))
            points = [point for point in points if point[1].get(name) in chosen]
            if not points:
                wanted = " or ".join(map(str, chosen))
                raise StudyError(f"{self.name}: no run has {name}={wanted}; it is {' or '.join(values)}")
        run_ids = {run_id for run_id, _ in points}
        return [run for run in self.requests if run.run_id in run_ids]

    def to_do(
        self, *, redo: bool = False, outdated: bool = False, only: Mapping[str, Sequence[Any]] = MappingProxyType({})
    ) -> list[Request]:
        """The runs to make, `only` the selected ones: those not complete or damaged; also those of other code (`outdated`), or all
        (`redo`)."""
        outdated_runs = self._of_other_code() if outdated else ()
        return [
            replace(run, redo=redo or run.state == "complete")
            for run in self.selected(only)
            if (redo and run.config.repeat <= self.repeats)
            or run.state != "complete"
            or run.run_id in outdated_runs
            or self._is_damaged(run)
        ]

    def _of_other_code(self) -> set[str]:
        """The complete runs that other code measured than is here now."""
        current_digest = functools.cache(lambda workload: provenance.measuring_digest(source_code.files(workload)))
        return {
            run.run_id
            for run in self.requests
            if run.state == "complete"
            and not current_digest(run.config.workload).startswith(
                digests(read_json(run.path / "provenance.json") or {})
            )
        }

    def _is_damaged(self, run: Request) -> bool:
        """Whether the records of a complete run contradict each other."""
        try:
            verify(run.path)
        except Refused as why:
            show(f"damaged: {run.run_id}: {why}; it is to do again; `hpc discard {run.run_id}` removes it")
            return True
        return False


def plan(
    name: str,
    target: Target | None = None,
    *,
    needs_data: bool = True,
    queued: Collection[str] = (),
    further: Mapping[str, int] = MappingProxyType({}),
) -> Plan:
    """The study's runs on `target` (by default this machine), each repeat's in the study file's order.

    Further repeats of its former plan remain in it if they are complete, running or queued.

    Args:
        needs_data: its data set must be here, because runs are to be started. queued: ids of runs in the queue.
        further: {run of a configuration's first repeat: how many repeats it is to have}.

    Raises:
        StudyError: no such study, a wrong file, no such chapter, or a series that can run nowhere.
        DataError: its data set is not here.
    """
    study = read_study_file(name)
    target = target or Target.here()
    index_name = target.index_name(Path(name).stem)
    for chapter in study.chapters:
        try:
            notebook = find_notebook(Path(chapter.notebook))
            if chapter.run is None and "study" not in defaults(notebook):
                raise ConfigError(f"{chapter.notebook} is no chapter about a study: it has no parameter `study`")
        except ConfigError as error:
            raise StudyError(f"{name}, chapters: {error}") from None
    points: list[Point] = []
    missing: list[NotApplicable] = []
    repeats = target.repeats or study.repeats
    extra_repeats = {}
    with contextlib.suppress(UnknownStudy):
        former = read_study(index_name)
        extra_repeats = {run.run_id: run.repeat for run in former.runs if run.repeat > repeats}
    for configuration in _configurations(study, target):
        series = configuration.series
        layout = configuration.layout
        if why := target.refusal(layout, configuration.parameters):
            missing.append(NotApplicable(series=series, ranks=layout.ranks, values=configuration.values, why=why))
            continue
        configuration_repeats = repeats
        for repeat in range(1, max([repeats, *extra_repeats.values(), *further.values()]) + 1):
            # A seed of its own for each repeat: the spread of accuracy is then the method's, not one draw's.
            parameters = configuration.parameters | {
                "repeat": repeat,
                "seed": configuration.parameters.get("seed", 0) + repeat - 1,
            }
            try:
                request = prepare(
                    Path(configuration.notebook), parameters, layout,
                    hardware=target.hardware, needs_data=needs_data, imports=not target.in_container,
                )  # fmt: skip
            except ConfigError as error:
                elsewhere = study_path(name).parent.absolute()
                remedy = (
                    f"; {configuration.notebook} is in {elsewhere}: run this there"
                    if (elsewhere / configuration.notebook).is_file() and elsewhere != Path.cwd()
                    else ""
                )
                raise StudyError(f"{name}, [parameters] or series {series!r}: {error}{remedy}") from None
            if repeat == 1:
                configuration_repeats = max(repeats, further.get(request.run_id, 0))
            begun = request.run_id in queued or request.state in ("complete", "running")
            if repeat <= configuration_repeats or (request.run_id in extra_repeats and begun):
                points.append(Point(series, layout.ranks, repeat, request))
    points.sort(key=lambda point: point.repeat)
    command = target.command.replace("STUDY", shlex.quote(name), 1)
    return Plan(index_name, command, _described(study, target), target, points, missing, study_path(name))


def _described(study: Study, target: Target) -> Study:
    """The study with what the target changes in its title and text; options of the device only if a command gives them."""
    values = _values(study, target)
    former = _values(study, replace(target, overrides=UNCHANGED, variant=PLAIN))
    changes = [name for name, text in values.items() if text != former.get(name, "")]
    by_command = [
        name for name in changes if name in target.variant.parameters or (name == "ranks" and target.variant.ranks)
    ]
    by_cluster = {*changes} - {*by_command, *identity.DEVICE, "cores_per_rank"}
    title = study.title + f", changed for {HardwareId.parse(target.hardware).name}" * bool(by_cluster)
    title += f", with {', '.join(f'{name}={values[name]}' for name in by_command)}" * bool(by_command)
    rows = [
        f"{name}={values[name]} (study file: {former.get(name)})"
        for name in changes
        if name in {*by_command, *by_cluster}
    ]
    changed = f"Changed: {', '.join(rows)}. " * bool(rows)
    unchanged = "The study file says: " * bool(rows and study.about) + study.about
    description = f"{changed}{unchanged}".strip()
    return study.model_copy(update={"title": title, "about": description})


def _values(study: Study, target: Target) -> dict[str, str]:
    """{option, or "ranks": its different values on the target}."""
    defaults = {name: option.default for name, option in RunConfig.model_fields.items()}
    values: dict[str, dict[str, None]] = {}
    for configuration in _configurations(study, target):
        for name, value in (defaults | configuration.parameters | {"ranks": configuration.layout.ranks}).items():
            values.setdefault(name, {})["none" if value is None else str(value)] = None
    return {name: ",".join(texts) for name, texts in values.items()}


class _Configuration(NamedTuple):
    """One configuration of a study: `values` distinguish it in its series, `parameters` are all of its."""

    series: str
    notebook: str
    layout: Layout
    values: dict[str, Any]
    parameters: dict[str, Any]


def _configurations(study: Study, target: Target) -> Iterator[_Configuration]:
    """All configurations of a repeat, in the order in which they are measured: the series', then the ablation's.

    Raises:
        StudyError: a command gives a value of what the study varies, or a cluster file parameters of series that it does not have.
    """
    all_series = target.overrides.series or study.series
    for names in target.overrides.parameters_of:
        if not any(re.fullmatch(names, series.name) for series in all_series):
            raise StudyError(f"parameters_of: no series matches {names!r}: {', '.join(s.name for s in all_series)}")
    for series in all_series:
        shared = study.parameters | series.parameters | target.overrides.parameters
        for names, parameters in target.overrides.parameters_of.items():
            shared |= parameters if re.fullmatch(names, series.name) else {}
        shared |= dict(target.variant.parameters)
        matrix = {name: target.overrides.matrix.get(name, values) for name, values in series.matrix.items()}
        if varied := sorted(matrix.keys() & target.variant.parameters.keys()):
            raise StudyError(
                f"-p {varied[0]}: series {series.name!r} measures {matrix[varied[0]]}; `hpc study run` and `hpc submit` choose with --only {varied[0]}=VALUE"
            )
        is_single_process = shared.get("parallel") == "none"  # one process everywhere
        counts = series.ranks if is_single_process or not target.ranks else target.ranks
        for combined in itertools.product(*matrix.values()):
            values = dict(zip(matrix, combined, strict=True))
            for ranks in counts:
                parameters = _plain(shared | values)
                layout = target.layout(ranks, series.ranks_per_node)
                yield _Configuration(series.name, series.notebook, layout, values, parameters)
    if ablation := study.ablation:
        for name, changes in ablation.series(_refusal(study, target)).items():
            parameters = _ablated(study, target, changes)
            layout = target.layout(ablation.ranks, ablation.ranks_per_node)
            yield _Configuration(name, ablation.notebook, layout, changes, parameters)


def _refusal(study: Study, target: Target) -> Callable[[Mapping[str, Any]], str]:
    """A function of changes: why the plain loop with them cannot be run on the target; empty if it can."""
    layout = target.layout(study.ablation.ranks, study.ablation.ranks_per_node)
    return lambda changes: target.refusal(layout, _ablated(study, target, changes))


def _ablated(study: Study, target: Target, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The plain loop on the target with `changes`; no target replaces the ablation's own parameters."""
    return _plain(study.parameters | target.parameters | study.ablation.parameters | changes)


def _plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with `none` as None, and `workload_args.NAME` in `workload_args`."""
    prefix = "workload_args."
    arguments = {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}
    values = {name: plain(name, value) for name, value in parameters.items() if not name.startswith(prefix)}
    return values | ({"workload_args": values.get("workload_args", {}) | arguments} if arguments else {})


def forecast(study_plan: Plan) -> list[dict[str, Any]]:
    """One entry a point, the input of `analyze.budget.estimate` and `analyze.ceiling.planned`.

    Sizes of data sets are the catalogue's, so that the data need not be here; a user's own workload has None.
    """
    return [_forecast(point, study_plan.target) for point in study_plan.points]


def _forecast(point: Point, target: Target) -> dict[str, Any]:
    config = point.request.config
    layout = point.request.layout
    parameters = identity.measured(config, layout.ranks)
    data = None if source_code.is_own(config.workload) else datasets.info(config.dataset)
    train = data and data.train.count
    every = config.evaluate_every
    on_gpu = target.gpu and config.device != "cpu"
    names = "workload dataset precision parallel global_batch batch_per_device epochs warmup_steps"
    return {
        "run_id": point.request.run_id,
        "series": point.series,
        "repeat": point.repeat,
        "hardware_id": target.hardware,
        "device": "cuda" if on_gpu else "cpu",
        "device_name": target.gpu if on_gpu else "",
        "settings": identity.settings(parameters),
        **{name: parameters[name] for name in names.split()},
        "cores_per_rank": config.cores_per_rank or 0.0,
        "threads_per_rank": config.cores_per_rank or config.threads_per_rank or 1,
        "link_gbit": config.link_gbit if layout.ranks > 1 else None,  # one rank needs none
        "world_size": layout.ranks,
        "nodes": layout.nodes,
        "ranks_per_node": layout.ranks_per_node,
        "test_samples": data and data.test.count,
        "steps": config.steps_per_epoch or (train and train // parameters["global_batch"]),
        "evaluations": -(-config.epochs // every) if every else 0,
    }
