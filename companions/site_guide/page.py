"""The page of a cluster, from its file, the doctor's reports, the runs measured there and the collectives."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from hpc_utils import paths, records
from hpc_utils.analyze import budget, cost, points, recommend
from hpc_utils.analyze.compare import quotient
from hpc_utils.analyze.decide import decide
from hpc_utils.analyze.stats import Estimate
from hpc_utils.launch import job_environment
from hpc_utils.launch.cluster import Cluster, NodeType
from hpc_utils.plural import counted
from hpc_utils.provenance import HardwareId
from hpc_utils.provenance.facts import facts, settings
from hpc_utils.provenance.system import markdown_table
from hpc_utils.publish.formatting import ABSENT, quantity
from hpc_utils.publish.plan_table import interval_text
from hpc_utils.publish.plots import drawing
from hpc_utils.records import probes
from hpc_utils.records.folder import read_json
from hpc_utils.records.identity import PLANNED, POINT, SAME, parse_settings, task

from . import collectives

NOT_RECORDED = "not measured"
MACHINE = (
    "processor", "sockets", "physical cores", "threads a core", "memory", "GPUs", "network", "InfiniBand", "operating system",
)  # fmt: skip
LIBRARIES = (
    "modules", "python", "torch", "cuda", "hip", "cudnn", "driver", "nccl", "MPI", "UCX", "slurm", "container",
)  # fmt: skip
LABELLED = ("world_size", "nodes", "parallel", "precision", "global_batch")  # by `recommend.describe`
STEERS = re.compile(r"^export ((?:NCCL|RCCL|GLOO|UCX|FI|MPICH|TORCH_NCCL)_\w+)=(.*)$", re.MULTILINE)
SENT = (
    ("DDP", "broadcast", "parameters and buffers, once at the start", "P, by the first rank"),
    ("DDP", "all-reduce", "gradients, each step, during the backward pass", "2 (N-1)/N P"),
    ("ZeRO-1", "all-reduce", "gradients, as under DDP", "2 (N-1)/N P"),
    ("ZeRO-1", "broadcast", "the parameters that each rank has updated, each step", "P/N, by each rank to all others"),
    ("FSDP", "all-gather", "parameters, each step, before the forward and again before the backward pass", "2 (N-1)/N P"),
    ("FSDP", "reduce-scatter", "gradients, each step, during the backward pass", "(N-1)/N P"),
    ("none of them", "reduce", "a sum for one rank only, such as a metric", "P"),
)  # fmt: skip
LAUNCH = """
Each option again, by its number. `hpc submit` makes only the runs that are missing (`--redo` repeats them); `sbatch` makes one run by
hand, after `hpc cluster use {cluster}`, which prints the options for partition, account and devices.

```
{commands}
```
"""
FOLLOW = """Of a submitted STUDY and its RUN:

```
hpc status STUDY --watch    # what waits, runs and failed
hpc monitor RUN             # utilisation, memory and power while it runs
hpc logs RUN
hpc cancel STUDY
```

Of a job submitted by hand: `squeue --me`, `tail -f slurm-train-JOB.log`, `scancel JOB` (it writes a checkpoint first)."""
PAGE = """# Guide to {title}

{about}

## Hardware and libraries

{nodes}

{machines}

## Options

{options}

## Monitor and cancel

{follow}

## Settings of NCCL and of the network

{nccl}

## Which option to use

{advice}

## Collectives

What a rank sends, with N ranks and P bytes of parameters (their gradients have as many):

{sent}

{collectives}
"""


class Site(NamedTuple):
    """A cluster with what was measured there.

    Attributes:
        results: folder of the runs. runs: without limited links and profiles, with `node_type` and `task`. epochs: of all runs.
        limited: how many unprofiled runs had limited links.
        doctored: reports of `hpc doctor`, newest first.
    """

    cluster: Cluster
    results: Path
    runs: pd.DataFrame
    epochs: pd.DataFrame
    doctored: list[dict[str, Any]]
    limited: int

    @classmethod
    def read(cls, cluster: Cluster, results: Path) -> Site:
        """Of that cluster in the set `results`, and reports of the doctor there or in the results of this clone."""
        loaded = records.load(results)
        runs = loaded.runs
        limited = 0
        if len(runs):
            names = runs.hardware_id.map(lambda hardware: HardwareId.parse(hardware).name)
            is_here = names.isin([f"{cluster.name}-{node}" for node in cluster.nodes])
            tasks = [task(run) for run in runs.to_dict("records")]
            here = points.unprofiled(runs.assign(node_type=names, task=tasks)[is_here])
            runs = here[here.link_gbit.isna()]
            limited = len(here) - len(runs)
        files = {*results.glob("doctor/*/doctor.json"), *paths.results().glob("doctor/*/doctor.json")}
        reports = filter(None, map(read_json, files))
        return cls(
            cluster,
            results,
            runs,
            loaded.epochs,
            sorted(reports, key=lambda report: report["made"], reverse=True),
            limited,
        )

    def is_of(self, hardware: str | None, node: str) -> bool:
        """Whether a hardware id is of that node type."""
        return bool(hardware) and HardwareId.parse(hardware).name == f"{self.cluster.name}-{node}"


class Plan(NamedTuple):
    """A study's `budget.estimate` on the cluster, where a step's time is predicted, beside the options `measured`."""

    study: str
    estimates: pd.DataFrame
    measured: pd.DataFrame = pd.DataFrame()

    def by_task(self) -> Iterator[tuple[tuple[str, str], pd.DataFrame]]:
        """((hardware id, task), its rows)."""
        predicted = self.estimates.dropna(subset="step_seconds")
        tasks = pd.Series(map(task, predicted.to_dict("records")), predicted.index, object)
        return iter(predicted.groupby([predicted.hardware_id, tasks]))

    def of_task(self, option: pd.Series, measured: pd.DataFrame) -> Plan:
        """What is not measured yet of an option's machine and task."""
        rows = dict(self.by_task()).get((option.hardware_id, task(option)), self.estimates.iloc[:0])
        return Plan(self.study, rows[rows.basis != "measured"], measured)


class Option(NamedTuple):
    """A row of a table of options: seconds of training, label, the other cells, and the commands that launch it."""

    seconds: float
    label: str
    cells: tuple[str, ...]
    commands: list[str]


def guide_page(site: Site, device_hours: float, planned: tuple[str, pd.DataFrame] | None = None) -> str:
    """The page; its options do the work that the smallest of them trains in `device_hours`.

    Args:
        planned: a study's name and its `budget.estimate` there.
    """
    cluster = site.cluster
    works = list(_works(site, device_hours))
    plan = Plan(*planned or ("", pd.DataFrame(columns=[*budget.SAME, "step_seconds", "basis", "note"])))
    sections = [_measured_work(site, *work, device_hours, plan) for work in works]
    sections += _planned_works(site, [smallest for _, _, smallest, _ in works], device_hours, plan)
    sections += _notes(site, plan)
    study = f"{plan.study or 'strong'} --cluster {cluster.name}"
    missing = f"Not measured: `hpc submit {study}` measures it, `hpc plan {study}` predicts it."
    return PAGE.format(
        title=cluster.title,
        about=cluster.about.strip(),
        nodes=_nodes(site),
        machines="\n\n".join(_machine(site, node) for node in cluster.nodes),
        options="\n\n".join(sections) or missing,
        follow=FOLLOW,
        nccl="\n\n".join(_nccl(site, node) for node in cluster.nodes),
        advice=_advice(site, works) or missing,
        sent=_table(("with", "collective", "what and when", "bytes sent"), SENT),
        collectives=_collectives(site),
    )


def _table(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    return "\n".join(markdown_table(tuple(header), [tuple(map(str, row)) for row in rows])).strip()


def _node(site: Site, hardware: str) -> NodeType:
    return next(node for name, node in site.cluster.nodes.items() if site.is_of(hardware, name))


def _nodes(site: Site) -> str:
    """The node types as the cluster file states them, and what each is best for."""
    best = _best(site.runs)
    rows = []
    for name, node in site.cluster.nodes.items():
        memory = f", {node.gpu_memory} GB each" if node.gpu_memory else ""
        devices = f"{node.gpus} x {node.gpu}{memory}" if node.gpus else "cores"
        stated = (node.most_nodes, node.cores, node.memory)
        price = f"{node.price:g} {node.unit}"
        use = best.get(f"{site.cluster.name}-{name}", NOT_RECORDED)
        rows.append((name, node.partition, devices, *(value or "not stated" for value in stated), price, use))
    link = site.cluster.network.link_gbit
    network = f"{link:g} Gbit/s a node, nominal" if link else "the cluster file states no bandwidth"
    header = (
        "nodes",
        "partition",
        "devices",
        "most of a job",
        "cores",
        "host memory",
        "an hour costs",
        "fastest here, by one device",
    )
    return f"{_table(header, rows)}\n\nNetwork: {network}."


def _best(runs: pd.DataFrame) -> dict[str, str]:
    """{node type: the tasks that one of its devices trains fastest, among the node types measured}."""
    if runs.empty:
        return {}
    single = runs[runs.world_size == 1]
    configurations = points.number(single, [*SAME, *POINT])
    rates = single.groupby(["task", "node_type", "precision", configurations]).throughput.median().reset_index()
    fastest = rates.sort_values("throughput").drop_duplicates("task", keep="last")
    types = rates.groupby("task").node_type.nunique()
    words: dict[str, list[str]] = {}
    for row in fastest.itertuples():
        rate = f"{row.task}: {row.throughput:,.0f} samples/s on a device in {row.precision}"
        words.setdefault(row.node_type, []).append(rate + " (no other type measured)" * bool(types[row.task] == 1))
    return {node: "; ".join(rates) for node, rates in words.items()}


def _origin(site: Site, node: str) -> tuple[dict[str, Any], Mapping[str, Any], str]:
    """(provenance, what the doctor saw of the software, source) of a node type: its newest report, else its newest run."""
    for report in site.doctored:
        if site.is_of(report["provenance"]["hardware_id"], node):
            software = next(iter(report["saw"].get("software", {}).values()), {})
            return report["provenance"], software, f"`hpc doctor`, {report['made'][:10]}"
    runs = site.runs[site.runs.get("node_type", pd.Series(dtype=str)) == f"{site.cluster.name}-{node}"]
    if runs.empty:
        return {}, {}, ""
    run = runs.sort_values("started").iloc[-1]
    origin = read_json(site.results / run.path / "provenance.json") or {}
    return origin, {}, f"the run `{run.run_id}`, {run.started[:10]}"


def _machine(site: Site, node: str) -> str:
    origin, software, source = _origin(site, node)
    doctor = f"`hpc doctor --cluster {site.cluster.name} --nodes-of {node}`"
    if not origin:
        return f"Nodes `{node}`: {NOT_RECORDED}; {doctor} does."
    values = facts(origin) | {name: software[name] or "none" for name in ("MPI", "UCX") if name in software}
    rows = [(name, values.get(name, f"{NOT_RECORDED}: {doctor}")) for name in (*MACHINE, *LIBRARIES)]
    return f"Nodes `{node}`, by {source}:\n\n{_table(('fact', 'value'), rows)}"


def _works(site: Site, device_hours: float) -> Iterator[tuple[str, pd.DataFrame, pd.Series, float]]:
    """(title, options by training time, the smallest option, samples) of each workload with several options."""
    if site.runs.empty:
        return
    prices = {
        hardware: node
        for hardware in site.runs.hardware_id.unique()
        for name, node in site.cluster.nodes.items()
        if site.is_of(hardware, name)
    }
    for title, group in recommend.by_machine(cost.to_finish(site.runs, site.epochs, prices)).items():
        runs = site.runs[site.runs.run_id.isin(group.runs.sum())]
        small = group.assign(grouped=group.parallel != "none", other=group.precision != "fp32")
        smallest = small.sort_values(["world_size", "grouped", "other", "seconds"]).iloc[0]
        rate = runs[runs.run_id.isin(smallest.runs)].throughput.median()
        samples = 3600 * device_hours * rate / smallest.world_size
        options = cost.to_finish(runs, site.epochs, prices, samples).sort_values("seconds", ignore_index=True)
        options = options.assign(cores_per_rank=points.cores_per_rank(options))
        smallest = options.iloc[[runs == smallest.runs for runs in options.runs].index(True)]
        yield title, options, smallest, samples


def _measured_work(
    site: Site,
    title: str,
    options: pd.DataFrame,
    smallest: pd.Series,
    samples: float,
    device_hours: float,
    plan: Plan,
) -> str:
    """The options of a workload, measured and planned."""
    money, unit = cost.currency(options)
    gathered = points.gather(site.runs, ["throughput"])
    throughputs = dict(zip(gathered.runs, gathered.throughput_sample, strict=True))
    frontier = cost.pareto(options, money)
    cheapest = options[money].idxmin()
    apart, names = drawing.apart(options, LABELLED, SAME)
    table = []
    for row, base, (_, option) in zip(apart.itertuples(), _bases(options, SAME), options.iterrows(), strict=True):
        speedup = _quotient(throughputs, row.runs, smallest.runs)
        efficiency = _quotient(throughputs, row.runs, base.runs).times(base.world_size / row.world_size)
        decided = decide(efficiency, at_least=recommend.EFFICIENT)
        per_device = _interval(efficiency, "share")
        verdict = cost.WORTH.get(decided, decided)
        if row.runs == base.runs:
            verdict = "reference of its efficiency"
            if row.world_size > smallest.world_size:
                per_device = ABSENT
                verdict = "not judged: no smaller option of its settings"
        verdict += "; the fastest" * (row.Index == 0) + "; the cheapest" * (row.Index == cheapest)
        verdict += "; another is faster and cheaper" * (not frontier.pareto[row.Index])
        label = recommend.describe(row) + drawing.more(row, names)
        price = f"{getattr(row, money) * cost.MILLION / samples:.3g}"
        cells = (quantity(row.seconds, "s"), _interval(speedup), per_device, f"{row.device_hours:.3g}", price)
        commands = list(_commands(site, option))
        table.append(Option(row.seconds, label, (*cells, verdict), commands))
    table += _planned_options(site, plan.of_task(smallest, options), smallest.seconds, samples)
    return _work(site, title, table, recommend.describe(smallest), samples, device_hours, unit)


def _notes(site: Site, plan: Plan) -> Iterator[str]:
    """What the tables leave out, and what "planned" means in them."""
    if site.limited:
        yield f"{counted(site.limited, 'run')} over links that were limited on purpose are no options."
    bases = dict.fromkeys(plan.estimates.basis)
    if bases:
        total = budget.total(plan.estimates, {})
        nodes, devices = (interval_text(name)(total) for name in ("node_hours", "device_hours"))
        yield (
            f"All {total['runs']} runs of the plan of `{plan.study}`, with their repeats, take {nodes} node-hours ({devices} device-hours)."
        )
    if unknown := int((plan.estimates.basis == "time limit").sum()):
        yield (
            f"Of the plan of `{plan.study}`, the time of {counted(unknown, 'configuration')} is not known: `hpc plan` says what would give it."
        )
    for basis in bases:
        if basis not in ("measured", "time limit"):
            yield f"*planned ({basis})*: {budget.BASES[basis]}."
    for note in dict.fromkeys(filter(None, plan.estimates.note[plan.estimates.basis == "model"])):
        yield f"*planned (model)*, {note}."


def _planned_works(site: Site, measured: Iterable[pd.Series], device_hours: float, plan: Plan) -> Iterator[str]:
    """The planned options of each workload of which no section has measured ones."""
    done = {(row.hardware_id, task(row)) for row in measured}
    for (hardware, title), rows in plan.by_task():
        if (hardware, title) not in done:
            rows = rows.assign(grouped=rows.parallel != "none", other=rows.precision != "fp32")
            smallest = rows.sort_values(["world_size", "grouped", "other", "step_seconds"]).iloc[0]
            seconds = 3600 * device_hours / smallest.world_size
            samples = seconds / smallest.step_seconds * smallest.global_batch
            table = _planned_options(site, plan._replace(estimates=rows), seconds, samples)
            unit = _node(site, hardware).unit
            yield _work(site, title, table, recommend.describe(smallest), samples, device_hours, unit)


def _planned_options(site: Site, plan: Plan, reference: float, samples: float) -> Iterator[Option]:
    """Of the planned configurations; their set-up is not counted. `reference`: seconds of the smallest option."""
    rows = plan.estimates
    if rows.empty:
        return
    rows = rows.assign(seconds=samples * rows.step_seconds / rows.global_batch)
    apart, names = drawing.apart(rows, LABELLED, PLANNED)
    bases = _bases(pd.concat([rows, plan.measured]), PLANNED)
    for place, (row, base) in enumerate(zip(apart.itertuples(), bases, strict=False)):
        span = Estimate(row.step_seconds, row.step_seconds_low, row.step_seconds_high, 0).times(
            samples / row.global_batch
        )
        speedup = Estimate(reference / span.value, reference / span.high, reference / span.low, 0)
        efficiency = speedup.times(base.seconds * base.world_size / reference / row.world_size)
        decided = decide(efficiency, at_least=recommend.EFFICIENT)
        is_base = base.name == place
        verdict = "reference of its efficiency" if is_base else cost.WORTH.get(decided, decided)
        hours = row.seconds / cost.HOUR
        price = _node(site, row.hardware_id).cost(row.nodes, row.ranks_per_node, hours) * cost.MILLION / samples
        cells = (
            quantity(row.seconds, "s"),
            _interval(speedup),
            ABSENT if is_base else _interval(efficiency, "share"),
        )
        cells += (f"{hours * row.world_size:.3g}", f"{price:.3g}", f"planned ({row.basis}): {verdict}")
        command = _submit(plan.study, site.cluster, row.series, row)
        yield Option(row.seconds, recommend.describe(row) + drawing.more(row, names), cells, [command])


def _work(
    site: Site, title: str, table: list[Option], smallest: str, samples: float, device_hours: float, unit: str
) -> str:
    """The table of a workload's options from fastest to slowest, and how to launch each."""
    table = sorted(table, key=lambda option: option.seconds)
    rows = [(number, option.label, *option.cells) for number, option in enumerate(table, 1)]
    caution = "Option 1 is predicted to be the fastest: measure it first, as recommendations below are of measured ones alone."
    caution *= table[0].cells[-1].startswith("planned")
    lines = [
        line for number, option in enumerate(table, 1) for line in (f"# {number}: {option.label}", *option.commands)
    ]
    launch = LAUNCH.format(cluster=site.cluster.name, commands="\n".join(lines))
    price = f"{unit}, a million samples"
    header = ("", "option", "training", "speed-up", "efficiency", "device-hours", price, "verdict")
    return f"""### {title}

{samples:,.0f} samples, which {smallest}, the smallest option, trains in {device_hours:g} device-hours. Speed-up is
over it, whatever the precision; efficiency over the smallest option of the same precision and settings, both with 95 % intervals. Good value
is an efficiency of at least {100 * recommend.EFFICIENT:.0f} %. Device-hours and cost include set-up and evaluation as measured; planned ones are of training alone.

{_table(header, rows)}

{caution}
{launch}"""


def _bases(options: pd.DataFrame, keys: list[str]) -> list[pd.Series]:
    """Of each option that whose devices its efficiency counts: the smallest, `keys` equal."""
    options = options.reset_index(drop=True)
    kinds = points.number(options, keys)
    ordered = options.assign(grouped=options.parallel != "none").sort_values(["world_size", "grouped", "seconds"])
    smallest = ordered.groupby(kinds[ordered.index]).head(1)
    by_kind = {kinds[place]: row for place, row in smallest.iterrows()}
    return [by_kind[kind] for kind in kinds]


def _quotient(throughputs: Mapping[Any, points.Sample], above: Any, below: Any) -> Estimate:
    """Throughput of the runs `above` over that of those `below`; 1 of the same."""
    if above == below:
        return Estimate(1.0, np.nan, np.nan, 0)
    return quotient(throughputs[above], throughputs[below]).estimate


def _interval(estimate: Estimate, unit: str = "ratio") -> str:
    return quantity(estimate.value, unit, low=estimate.low, high=estimate.high, repeats=estimate.repeats)


def _submit(study: str, cluster: Cluster, series: str, option: Any) -> str:
    filters = {"series": series, "nodes": f"{option.nodes:g}", "ranks": f"{option.world_size:g}"}
    only = " ".join(f"--only {name}={value}" for name, value in (filters | {"precision": option.precision}).items())
    return f"hpc submit {study} --cluster {cluster.name} {only}"


def _commands(site: Site, option: pd.Series) -> Iterator[str]:
    """How to launch an option: by the study that measured it, and by hand."""
    for path in sorted(site.results.glob("studies/*.json")):
        index = records.read_study(path.stem, site.results)
        if planned := next((run for run in index.runs if run.run_id in option.runs), None):
            yield _submit(path.stem.removesuffix(f"-{option.hardware_id}"), site.cluster, planned.series, option)
    names = ("workload", "dataset", "parallel", "precision", "global_batch")
    parameters = {name: option[name] for name in names if pd.notna(option[name])} | parse_settings(option.settings)
    if option.device == "cpu":
        parameters |= (
            {"cores_per_rank": option.cores_per_rank}
            if option.cores_per_rank
            else {"threads_per_rank": int(option.threads_per_rank)}
        )
        parameters |= {"share_period": option.share_period} if pd.notna(option.share_period) else {}
    gpus = f" --gpus-per-node={option.ranks_per_node:g}" if option.device != "cpu" else ""
    ranks = "" if gpus else f"RANKS_PER_NODE={option.ranks_per_node:g} "
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in parameters.items()}
    given = " ".join(f"-p {shlex.quote(f'{name}={text}')}" for name, text in texts.items())
    yield f"{ranks}sbatch --nodes={option.nodes:g}{gpus} jobs/train.sbatch {given}"


def _nccl(site: Site, node: str) -> str:
    """The variables that jobs set, those that a run or the doctor found set, and the path that NCCL took."""
    environment = job_environment.render(site.cluster, site.cluster.nodes[node], root=paths.root())
    rows = [(name, value.strip('"'), "every job, by the cluster file") for name, value in STEERS.findall(environment)]
    origin, _, source = _origin(site, node)
    found = {name: value for name, value in settings(origin).items() if STEERS.match(f"export {name}={value}")}
    rows += [(name, value, source) for name, value in found.items()]
    reports = (report for report in site.doctored if site.is_of(report["provenance"]["hardware_id"], node))
    checks = {check["name"]: check["measured"] for check in next(reports, {"checks": []})["checks"]}
    path = checks.get("transport", f"{NOT_RECORDED}; `hpc doctor --cluster {site.cluster.name}` does")
    variables = _table(("variable", "value", "set by"), rows) if rows else "No variable is set: NCCL and gloo choose."
    return f"Nodes `{node}`. Path between ranks: {path}.\n\n{variables}"


def _advice(site: Site, works: Iterable[tuple[str, pd.DataFrame, pd.Series, float]]) -> str:
    """`recommend.of_each` of the work asked for: for development, for production and others."""
    advice = recommend.of_each({title: options for title, options, _, _ in works}, site.runs)
    names = ["which", "purpose", "configuration", "verdict", "reason", "caveat"]
    return _table(names, advice[names].to_numpy()) if len(advice) else ""


def _collectives(site: Site) -> str:
    sizes = []
    if len(site.runs):
        for run in site.runs.drop_duplicates("task").itertuples():
            if run.parameters > 0:
                sizes.append(f"P of {run.task} is {quantity(4.0 * run.parameters, 'B')} in fp32.")
    measured = []
    for record in probes.read_everywhere("collectives"):
        if any(site.is_of(record["hardware_id"], node) for node in site.cluster.nodes):
            ranks = f"{record['world_size']} ranks on {record['nodes']} node(s), {record['backend']}, {record['device_name']}"
            measured.append(f"{ranks}:\n\n{_table(collectives.HEADER, collectives.rows(record))}")
    missing = f"Times: {NOT_RECORDED}; `hpc bench collectives --cluster {site.cluster.name}` does, on two ranks."
    return "\n\n".join([*filter(None, [" ".join(sizes)]), *(measured[:1] or [missing])])
