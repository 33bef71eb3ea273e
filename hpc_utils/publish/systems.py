"""SYSTEM.md of the clone: every committed result set, and what it was measured on, with what, when and by which jobs; and
the README's table of how fast each is.

Each set has a SYSTEM.md of its own with all that was recorded; this page answers what one asks first, side by side.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_utils import paths, provenance, records
from hpc_utils.records import atomic
from hpc_utils.records.folder import read_json

from . import style, tables

if TYPE_CHECKING:
    import pandas as pd

    from hpc_utils.analyze.cost import Total

WRITTEN = "<!-- written by `make docs` from the provenance of the committed runs -->"
FASTEST, END = "<!-- written by make docs from the committed runs -->", "<!-- end -->"
GOALS = (0.94, 0.96)  # shares of CIFAR-10's test images
NOT_RECORDED, UNKNOWN = "not recorded", "not known"
GIB = 2**30

Record = Mapping[str, Any]


def renew(sets: Sequence[Path] | None = None) -> Path:
    """Write SYSTEM.md of each set (by default the committed ones), the README's table and the clone's SYSTEM.md; the path of
    that."""
    written = pages(sets)
    for path, text in written.items():
        atomic.write_text(path, text)
    return list(written)[-1]


def pages(sets: Sequence[Path] | None = None) -> dict[Path, str]:
    """{path: what should stand there}: each set's page, the README, the clone's page last."""
    sets = sorted(paths.reference().glob("*/")) if sets is None else sets
    found = {folder: records.load(folder) for folder in sets}
    each = {folder: _origins(folder, own.runs) for folder, own in found.items()}
    written = {folder / "SYSTEM.md": provenance.system_markdown(each[folder]) for folder in sets}
    readme = paths.root() / "README.md"
    before, _, rest = readme.read_text().partition(FASTEST)
    written[readme] = f"{before}{FASTEST}\n\n{fastest(found)}\n\n{END}{rest.partition(END)[2]}"
    return written | {paths.root() / "SYSTEM.md": overview(found, each)}


def fastest(found: Mapping[Path, records.Records]) -> str:
    """A row a set, model and data set: the fastest configuration of one device, and how soon any reaches `GOALS`."""
    import pandas as pd

    from hpc_utils.analyze import cost, points

    parts = []
    for folder, own in found.items():
        runs = points.unwatched(own.runs)
        runs = runs[runs.world_size == 1]
        best = points.points(runs).sort_values("throughput", ascending=False).groupby(["workload", "dataset"]).head(1)
        part = pd.DataFrame(
            {
                "set": f"[`{folder.name}`]({_link(folder)})",
                "one device": best.device_name,
                "model on data set": best.workload + " on " + best.dataset,
                "precision": best.precision,
                "images/s": tables.measured(best, "throughput", best.repeats == 1),
                "repeats": best.repeats,
            }
        )
        for goal in GOALS:
            reached = cost.to_accuracy(runs[runs.dataset == "cifar10"], own.epochs, goal, {})
            soonest = reached.dropna(subset="seconds").sort_values("seconds").groupby("workload").head(1)
            seconds = dict(
                zip(soonest.workload, tables.measured(soonest, "seconds", soonest.repeats == 1), strict=True)
            )
            own_name = best.workload.where(best.dataset == "cifar10")
            part[f"to {goal:.0%} (s)"] = [seconds.get(name, tables.ABSENT) for name in own_name]
        parts.append(part)
    return tables.markdown(pd.concat(parts)) if parts else "No result set is committed."


def overview(found: Mapping[Path, records.Records], origins: Mapping[Path, Sequence[Record]]) -> str:
    """The page about all sets: a column a set, a row a question."""
    from hpc_utils.analyze import cost

    answers = {
        folder: _answers(folder, own, origins[folder], cost.total(own.runs, own.epochs))
        for folder, own in found.items()
    }
    questions = list(dict.fromkeys(question for own in answers.values() for question in own))
    rows = [[question, *(own.get(question, "") for own in answers.values())] for question in questions]
    header = ["", *(f"[`{folder.name}`]({_link(folder)}/SYSTEM.md)" for folder in answers)]
    notes = dict.fromkeys(note for own in found.values() for note in cost.total(own.runs, own.epochs).notes)
    lines = [
        "# What the results were measured on",
        "",
        WRITTEN,
        "",
        "Each column is a committed result set; its own page has the rest: interfaces, variables, each job's nodes. *Not "
        "recorded* means that the measuring code of that day did not look; *not known* that the machine did not tell.",
        "",
        *(_table(header, rows) if answers else ["No result set is committed."]),
        "",
        *(f"- {note}" for note in notes),
        *([""] if notes else []),
        "Measured by the authors in [`CITATION.cff`](CITATION.cff). Serial numbers and addresses are never recorded. "
        "[`REPRODUCE.md`](REPRODUCE.md) says how each set is made again.",
    ]
    return "\n".join(lines) + "\n"


def _answers(folder: Path, own: records.Records, origins: Sequence[Record], total: Total) -> dict[str, str]:
    runs = own.runs
    processors = [_at(one, "hardware", "cpu") or {} for one in origins]
    hosts, versions = ([one.get(name) or {} for one in origins] for name in ("host", "versions"))
    jobs = [one.get("job") or {} for one in origins]
    days = sorted({str(one)[:10] for one in runs.started})
    return {
        "hardware id": _each(runs.hardware_id),
        "processor": _each(one.get("model") for one in processors),
        "sockets x cores x threads": _each(_topology(one) for one in processors),
        "cores that a run may use": _each(one.get("usable") for one in processors),
        "instruction sets": _each(" ".join(one.get("flags") or ()) or None for one in processors),
        "caches of a core": _recorded(processors, "caches"),
        "frequency governor": _recorded(processors, "governor"),
        "virtual machine": _recorded(processors, "virtual", lambda told: "yes" if told else "no"),
        "memory": _each(f"{size / GIB:.0f} GiB" if (size := _at(one, "hardware", "memory_bytes")) else None for one in origins),
        "accelerators": _each(_gpus(one) for one in origins),
        "devices of a run": _devices(runs),
        "nodes x ranks": _each(sorted({f"{int(run.nodes)}x{int(run.ranks_per_node)}" for run in runs.itertuples()})),
        "network": _each(_interfaces(one) for one in origins),
        "links between nodes": _links(runs),
        "operating system": _each(one.get("os") for one in hosts),
        "kernel": _each(one.get("kernel") for one in hosts),
        "C library": _recorded(hosts, "libc"),
        "container": _recorded(hosts, "container", absent="none"),
        "modules": _recorded(hosts, "modules", absent="none"),
        "Python": _each(one.get("python") for one in versions),
        "torch": _each(one.get("torch") for one in versions),
        "CUDA, NCCL": _each(", ".join(str(one.get(name)) for name in ("cuda", "nccl") if one.get(name)) or "none" for one in versions),
        "BLAS, oneDNN": " and ".join(dict.fromkeys(_recorded(versions, name, absent="none") for name in ("blas", "onednn"))),
        "scheduler": _each(one.get("scheduler") or "none" for one in jobs),
        "Slurm": _recorded(versions, "slurm", absent="none"),
        "jobs": _jobs(jobs),
        "measured": days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}" if days else UNKNOWN,
        "commit": _each((f"`{c[: provenance.SHORT]}`{' (modified)' if d else ''}" if c else None) for c, d in zip(runs.commit, runs.dirty, strict=True)),
        "digest of the measuring code": _each(f"`{one}`{provenance.of_rule(origin)}" for one, origin in zip(runs.digest, origins, strict=True)),
        "studies": _each(f"`{path.stem.removesuffix(_suffix(runs))}`" for path in sorted((folder / "studies").glob("*.json"))),
        "runs": f"{len(runs)}" + (f", {len(own.refused)} refused" if own.refused else ""),
        "compute": f"{style.number(total.core_hours)} core-hours, {style.number(total.gpu_hours)} GPU-hours",
        "energy": f"{style.number(total.energy_kwh)} kWh of {total.counted} runs" if total.counted else "not counted",
    }  # fmt: skip


def _origins(folder: Path, runs: pd.DataFrame) -> list[Record]:
    return [read_json(folder / "runs" / run / "provenance.json") for run in runs.run_id]


def _each(values: Iterable[Any]) -> str:
    """The different values, each once, numbers and names in their order; what nobody told last."""
    seen = set(values)
    told = sorted(
        seen - {None},
        key=lambda one: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(one))],
    )
    return ", ".join([*map(str, told), *([UNKNOWN] if None in seen else [])])


def _recorded(records: Sequence[Record], key: str, say: Callable[[Any], str] = str, absent: str = UNKNOWN) -> str:
    told = [one[key] for one in records if key in one]
    return _each(absent if one is None else say(one) for one in told) if told else NOT_RECORDED


def _topology(processor: Record) -> str | None:
    counts = [processor.get(name) for name in ("sockets", "cores", "threads_per_core")]
    if not all(counts):
        return None
    return f"{counts[0]} x {counts[1] // counts[0]} x {counts[2]}"


def _gpus(origin: Record) -> str:
    names = [str(gpu.get("name")) for gpu in _at(origin, "hardware", "gpus") or ()]
    return ", ".join(f"{names.count(name)} x {name}" for name in sorted(set(names))) or "none"


def _interfaces(origin: Record) -> str | None:
    ports = _at(origin, "hardware", "infiniband") or ()
    cards = _at(origin, "hardware", "network") or ()
    told = [f"{one.get('link_layer')} {one.get('rate')}" for one in ports]
    told += [f"{one.get('driver')}{_speed(one)}" for one in cards]
    return ", ".join(dict.fromkeys(told)) or None


def _speed(card: Record) -> str:
    return f" {card['speed_mbps'] / 1000:g} Gbit/s" if card.get("speed_mbps") else ""


def _devices(runs: pd.DataFrame) -> str:
    told = {
        ("CPU" if run.device == "cpu" else "GPU")
        + (
            f" of {run.threads_per_rank:g} core{'s' if run.threads_per_rank > 1 else ''}"
            if run.device == "cpu"
            else ""
        )
        for run in runs.itertuples()
    }
    return _each(told)


def _links(runs: pd.DataFrame) -> str:
    across = runs[runs.nodes > 1]
    if across.empty:
        return "none: one node"
    limited = sorted({float(rate) for rate in across.link_gbit.dropna()})
    told = [f"{', '.join(f'{rate:g}' for rate in limited)} Gbit/s (limited)"] if limited else []
    return "; ".join([*told, *(["as they are"] if across.link_gbit.isna().any() else [])])


def _jobs(jobs: Sequence[Record]) -> str:
    numbers = {str(one.get("array_job_id") or one.get("id")) for one in jobs if one.get("scheduler")}
    return f"{len(numbers)}: {_each(numbers)}" if numbers else "none"


def _suffix(runs: pd.DataFrame) -> str:
    """What a cluster's hardware adds to a study's name."""
    names = set(runs.hardware_id)
    return f"-{names.pop()}" if len(names) == 1 else ""


def _link(folder: Path) -> str:
    root = paths.root()
    return folder.relative_to(root).as_posix() if folder.is_relative_to(root) else folder.as_posix()


def _at(record: Record, *keys: str) -> Any:
    value: Any = record
    for key in keys:
        value = (value or {}).get(key)
    return value


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    import pandas as pd

    return tables.markdown(pd.DataFrame(rows, columns=header)).splitlines()
