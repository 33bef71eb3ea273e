"""What several commands share: options, result sets by name, access to a cluster and its links, tables."""

from __future__ import annotations

import functools
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpc_utils import paths, workspace

if TYPE_CHECKING:
    from hpc_utils.launch.cluster import Cluster
    from hpc_utils.launch.request import Request
    from hpc_utils.launch.study import Plan
    from hpc_utils.launch.target import Target, Variant

POSITIVE = click.IntRange(1)
SET = "SET: a folder, a name under results/reference, or an alias of paper/paper.toml."
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

node_type_option = click.option(
    "--nodes-of",
    "node_type",
    default="",
    show_default=False,
    metavar="TYPE",
    help="Node type, if the cluster has several.",
)


class Finite(click.FloatRange):
    """A positive number. click's own ranges accept nan, which is in none."""

    def __init__(self, largest: float | None = None) -> None:
        super().__init__(0, largest, min_open=True)

    def convert(self, value: Any, option: click.Parameter | None, context: click.Context | None) -> float:
        number = super().convert(value, option, context)
        return number if math.isfinite(number) else self.fail(f"{value} is not a finite number", option, context)


def cluster_option(help: str) -> Callable:
    """`--cluster NAME`; the command receives `cluster_name`, None without one."""
    return click.option("--cluster", "cluster_name", metavar="NAME", help=help)


def parameters_option(help: str = "See `hpc params`.") -> Callable:
    """`-p NAME=VALUE`, repeated; the command receives `parameters`, a dict of parsed values."""

    def parse(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
        from hpc_utils.config import parse_assignments

        return parse_assignments(values)

    return click.option(
        "-p", "--parameter", "parameters", multiple=True, metavar="NAME=VALUE", callback=parse, help=help
    )


def variant_options(command: Callable) -> Callable:
    """What a command changes of a study; it receives `variant`, a `launch.target.Variant`."""

    @parameters_option("Overrides the study file in every run, with --as.")
    @click.option(
        "--ranks",
        metavar="N,N",
        default="",
        callback=numbers,
        help="Instead of those of each series of several processes.",
    )
    @click.option("--repeats", type=POSITIVE, help="Instead of the number in the study file.")
    @click.option("--as", "label", metavar="NAME", default="", help="Name of a variant's results.")
    @click.option(
        "--precision",
        type=Finite(1),
        metavar="X",
        help="Repeat until the half-widths of the headline ratios' 95 % "
        "intervals are at most X, such as 0.05 for 5 points of efficiency.",
    )
    @click.option(
        "--at-most", type=POSITIVE, metavar="N", help="With --precision: most repeats, instead of the study's."
    )
    @functools.wraps(command)
    def call(
        *, label: str, parameters: dict[str, Any], ranks: tuple[int, ...], repeats, precision, at_most, **options
    ):
        from hpc_utils.launch.target import Variant

        is_named = re.fullmatch(r"\w[\w.-]*", label) and label not in paths.study_files()
        if "repeat" in parameters:
            raise click.UsageError("-p repeat: a study numbers its repeats itself; --repeats gives how many")
        if (label or parameters or ranks) and not is_named:
            raise click.UsageError(
                "-p and --ranks change the study: give its results a name by --as NAME (letters, digits, . _ -; no study's own)"
            )
        return command(variant=Variant(label, parameters, ranks, repeats, precision, at_most), **options)

    return call


def numbers(context: click.Context, option: click.Parameter, text: str) -> tuple[int, ...]:
    """`8,16` as (8, 16)."""
    if not re.fullmatch(r"([1-9]\d*(,[1-9]\d*)*)?", text):
        raise click.BadParameter(f"{text!r}: give whole numbers with commas between, such as 8,16", context, option)
    return tuple(map(int, filter(None, text.split(","))))


def further_repeats(index: str, precision: float | None, at_most: int) -> dict[str, int]:
    """`analyze.precision.further_repeats` of a study's present records; {} without a precision, or without records."""
    from hpc_utils import records
    from hpc_utils.analyze import precision as precisions

    if precision is None:
        return {}
    try:
        study = records.read_study(index)
    except records.UnknownStudy:
        return {}
    ratios = precisions.headline_ratios(records.load(study=index), study)
    return precisions.further_repeats(ratios, study, precision, at_most)


def planned_repeats(study: str, target: Target) -> dict[str, int]:
    """`further_repeats` as the target's variant asks for them."""
    from hpc_utils.launch.study_file import read_study_file

    require_precision(target.variant, target.variant.precision)
    most = target.variant.at_most or read_study_file(study).at_most
    return further_repeats(target.index_name(Path(study).stem), target.variant.precision, most)


def require_precision(variant: Variant, precision: float | None) -> None:
    """UsageError if further repeats are limited, but no precision asks for any."""
    if variant.at_most and not precision:
        raise click.UsageError("--at-most limits the further repeats of a precision: give --precision, too")


def only_option(command: Callable) -> Callable:
    """`--only NAME=VALUE`, repeated: some runs of a study; the command receives `only`, {name: values}."""

    def parse(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, list[Any]]:
        from hpc_utils.config import json_or_text

        chosen: dict[str, list[Any]] = {}
        for value in values:
            name, equals, text = value.partition("=")
            if not equals:
                raise click.BadParameter(f"{value!r}: expected NAME=VALUE, such as ranks=2", context, option)
            chosen.setdefault(name, []).append(json_or_text(text))
        return chosen

    return click.option(
        "--only", multiple=True, metavar="NAME=VALUE", callback=parse,
        help="Of the runs only those: series, ranks, nodes, repeat or a parameter, such as ranks=2; a NAME given twice has either value.",
    )(command)  # fmt: skip


def redo_options(command: Callable) -> Callable:
    """`--redo` and `--outdated`: which complete runs of a study are measured again; `--only`: which of its runs."""
    older = click.option("--outdated", is_flag=True, help="Measure again what other code measured than is here now.")
    return click.option("--redo", is_flag=True, help="Measure again what is complete.")(older(only_option(command)))


def results_option(help: str) -> Callable:
    """`--results SET`; the command receives `folder`, a path or None."""
    return click.option(
        "--results",
        "folder",
        metavar="SET",
        callback=lambda context, option, name: name and result_set(name),
        help=help,
    )


def result_set(name: str | Path) -> Path:
    """The folder of a result set by its path, its name under results/reference, or its alias.

    Raises:
        NoResultSet: no such set, or it holds no runs.
    """
    try:
        return paths.result_set(name)
    except paths.NoResultSet as error:
        folders = aliases()
        if (folder := folders.get(str(name))) and paths.is_result_set(folder):
            return folder
        raise paths.NoResultSet(f"{error} (aliases: {', '.join(folders) or 'none'})") from None


def aliases() -> dict[str, Path]:
    """{alias: folder} of the table `sets` of paper/paper.toml; empty if it cannot be read, which `hpc paper` reports."""
    from pydantic import TypeAdapter

    try:
        content = tomllib.loads((paths.root() / "paper/paper.toml").read_text(encoding="utf-8"))
        folders = TypeAdapter(dict[str, str]).validate_python(content.get("sets"))
    except (OSError, ValueError):
        return {}
    return {alias: (paths.root() / folder).absolute() for alias, folder in folders.items()}


def tell(line: object) -> None:
    click.echo(line, err=True)


def warn(line: str) -> None:
    click.secho(line, fg="yellow", err=True)


def print_refused(refused: Mapping[Any, str]) -> None:
    for name, why in refused.items():
        click.secho(f"refused {name}: {why}", fg="red", err=True)


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 0) -> None:
    """Print aligned columns: numbers to the right, the last `text_columns` to the left.

    Characters that are not printable are shown as `?`: cells may hold names from a file.
    """
    from hpc_utils.publish.formatting import aligned

    for line in aligned([header, *rows], right=range(len(header) - text_columns)):
        click.echo(printable(line))


def printable(line: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def enter_cluster(name: str | None, *, start: bool = True, study: str = "") -> tuple[Cluster, dict[str, str]]:
    """Let this command use a cluster's Slurm, and its folders for results and data; a rehearsal that is started has the nodes
    that its file asks for `study`. If nothing is to `start`, folders named by variables that only the cluster has are not used.

    Returns:
        The cluster, and the environment variables that were set because the cluster file moves those folders.

    Raises:
        ClusterError: no such cluster, an invalid file, or the rehearsal cluster cannot start, or is not up and not to `start`.
    """
    from hpc_utils.launch import cluster, job_environment

    if name is None:
        raise click.UsageError(f"--cluster NAME is required: {', '.join(cluster.known())}, or a path to a .toml")
    site = cluster.read_cluster(name)
    connect(site.rehearsal, start=start, nodes=site.overrides(study).nodes or 2)
    moved = {}
    try:
        moved = job_environment.folders(site)
    except cluster.ClusterError as error:
        if start:
            raise
        tell(f"{error}: the runs in {paths.results()} are used instead")
    set_variables(moved)
    return as_rehearsed(site), moved


def set_variables(variables: Mapping[str, str]) -> None:
    """Add `variables` to the environment until the command ends."""
    click.get_current_context().with_resource(workspace.using(**variables))


def as_rehearsed(cluster: Cluster) -> Cluster:
    """`cluster`; a rehearsal with the links and devices of the one that Slurm's commands reach."""
    from hpc_utils import rehearsal

    if not cluster.rehearsal or (running_cluster := rehearsal.around()) is None:
        return cluster
    by_hand = running_cluster.by_hand
    return cluster.rehearsed(
        links=None if running_cluster.flat else by_hand or "",
        share=running_cluster.share,
        setup=(running_cluster.command, *[f"hpc cluster shape --rate {by_hand}"] * bool(by_hand)),
    )


def connect(to_rehearsal: bool, *, start: bool = True, nodes: int = 2) -> None:
    """Let Slurm's commands reach the rehearsal cluster; `start` it, with that many nodes, if it is not up.

    Raises:
        ClusterError: the rehearsal cluster is needed and not up, or cannot start.
    """
    from hpc_utils import rehearsal

    if not to_rehearsal or workspace.environment().get("SLURM_CONF"):
        return
    running_cluster = None
    why = "the rehearsal cluster is not up"
    try:
        running_cluster = rehearsal.find_cluster()
    except rehearsal.KilledError as error:
        why = str(error)
    if running_cluster is None:
        if not start:
            raise rehearsal.ClusterError(f"{why}: `hpc cluster up` starts it")
        tell(f"{why}; it is started (`hpc cluster down` ends it)")
        running_cluster = rehearsal.up(nodes=nodes)
    set_variables(running_cluster.environment())


def connect_to_submissions(study: str | None) -> tuple[str, ...]:
    """Let Slurm's commands reach the rehearsal cluster if something was submitted to it; it is not started.

    Returns:
        The clusters of submissions that are down: their jobs are lost.
    """
    from hpc_utils import rehearsal
    from hpc_utils.launch.submit import submissions

    rehearsals = {submission.cluster for submission in submissions(study) if submission.is_rehearsed}
    try:
        connect(bool(rehearsals), start=False)
    except rehearsal.ClusterError as error:
        tell(error)
        return tuple(rehearsals)
    return ()


@contextmanager
def run_links(request: Request, *, on_nodes: bool) -> Iterator[None]:
    """In the block the links of a rehearsal cluster have the rate of the run's `link_gbit`.

    Without `link_gbit`, their rate must be the one that the run's hardware id names.

    Args:
        on_nodes: the ranks are started on the job's nodes, not on this machine.

    Raises:
        ConfigError: there are no links to limit, or their rate contradicts the run's hardware id.
        ClusterError: another measurement holds the links at another rate.
    """
    from hpc_utils import provenance, rehearsal
    from hpc_utils.config import ConfigError

    gbit = request.config.link_gbit
    named = provenance.HardwareId.parse(provenance.hardware_id()).links or ""
    running_cluster = rehearsal.around() if on_nodes and workspace.environment().get("SLURM_JOB_ID") else None
    if running_cluster is None or running_cluster.flat:
        if gbit is not None:
            raise ConfigError(
                f"link_gbit={gbit:g}: there are no links to limit here. A rehearsal cluster that was started with root "
                "has them: hpc submit STUDY --cluster rehearsal"
            )
        yield
        return
    by_hand = running_cluster.by_hand if gbit is None else None  # the limit that the run's id names
    if named != (by_hand or ""):
        raise ConfigError(
            f"the run was named for links of {named or 'no limit'}, not of {by_hand or 'no limit'}: submit it again (in your own jobs "
            "`hpc cluster use NAME` first), with link_gbit after `hpc cluster shape --rate none`"
        )
    rate = by_hand if gbit is None else rehearsal.rate_of(gbit)
    with running_cluster.holding(rate, by=request.run_id):
        yield


def print_ceilings(plan: Plan) -> None:
    """The ceiling of the plan's strong curves, with a warning where it is below the study's target; if none is known for a
    cluster, what measures it."""
    from hpc_utils.analyze import ceiling
    from hpc_utils.launch.study import forecast
    from hpc_utils.records import probes

    points = forecast(plan)
    ceilings = list(ceiling.planned(points, probes.read_everywhere("compute"), plan.study.targets))
    if not ceilings and plan.target.cluster_file and (command := ceiling.planned_command(points)):
        click.echo(f"What computing alone allows is not measured; on one device: {command}")
    for line, in_reach in ceilings:
        if in_reach:
            click.echo(line)
        else:
            click.secho(f"warning: computing alone cannot meet the target: {line}", fg="yellow")
