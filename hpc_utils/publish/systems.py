"""SYSTEM.md of the clone: what each committed result set was measured on, with what, when and by which jobs; and the README's
table of how fast each is. `make docs` renews both, and the sets' own SYSTEM.md with all that was recorded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_utils import paths, provenance, records
from hpc_utils.records import atomic
from hpc_utils.records.folder import read_json

from . import style, tables

if TYPE_CHECKING:
    import pandas as pd

WRITTEN = "<!-- written by `make docs` from the provenance of the committed runs -->"
FASTEST, END = "<!-- written by make docs from the committed runs -->", "<!-- end -->"
GOALS = (0.94, 0.96)  # shares of CIFAR-10's test images
NO_SET = "No result set is committed."
# Rows that hold a part of the provenance as it is: each different value once.
MACHINE = {
    "processor": "hardware.cpu.model",
    "cores that a run may use": "hardware.cpu.usable",
    "instruction sets": "hardware.cpu.flags",
    "caches of a core": "hardware.cpu.caches",
    "virtual machine": "hardware.cpu.virtual",
}
SOFTWARE = {
    "operating system": "host.os",
    "kernel": "host.kernel",
    "C library": "host.libc",
    "container": "host.container",
    "modules": "host.modules",
    "Python": "versions.python",
    "torch": "versions.torch",
    "CUDA": "versions.cuda",
    "NCCL": "versions.nccl",
    "BLAS": "versions.blas",
    "oneDNN": "versions.onednn",
    "scheduler": "job.scheduler",
    "Slurm": "versions.slurm",
}


def renew(sets: Sequence[Path] | None = None) -> Path:
    """Write all pages; returns the path of the clone's SYSTEM.md. `sets`: by default the committed ones."""
    written = pages(sets)
    for path, text in written.items():
        atomic.write_text(path, text)
    return list(written)[-1]


def pages(sets: Sequence[Path] | None = None) -> dict[Path, str]:
    """{path: its text}: each set's page, the README, the clone's page last."""
    sets = sorted(paths.reference().glob("*/")) if sets is None else sets
    found = {folder: records.load(folder) for folder in sets}
    origins = {folder: _origins(folder, own.runs) for folder, own in found.items()}
    written = {folder / "SYSTEM.md": provenance.system_markdown(origins[folder]) for folder in sets}
    readme = paths.root() / "README.md"
    before, _, rest = readme.read_text().partition(FASTEST)
    written[readme] = f"{before}{FASTEST}\n\n{fastest(found)}\n\n{END}{rest.partition(END)[2]}"
    return written | {paths.root() / "SYSTEM.md": overview(found, origins)}


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
            names = best.workload.where(best.dataset == "cifar10")
            part[f"to {goal:.0%} (s)"] = [seconds.get(name, tables.ABSENT) for name in names]
        parts.append(part)
    return tables.markdown(pd.concat(parts)) if parts else NO_SET


def overview(found: Mapping[Path, records.Records], origins: Mapping[Path, Sequence[Mapping[str, Any]]]) -> str:
    """The page about all sets: a column a set, a row a question."""
    import pandas as pd

    from hpc_utils.analyze import cost

    totals = {folder: cost.total(own.runs, own.epochs) for folder, own in found.items()}
    answers = {
        f"[`{folder.name}`]({_link(folder)}/SYSTEM.md)": dict(_answers(folder, own, origins[folder], totals[folder]))
        for folder, own in found.items()
    }
    table = tables.markdown(pd.DataFrame(answers).rename_axis("").reset_index()) if answers else NO_SET
    notes = "".join(
        f"- {note}\n" for note in dict.fromkeys(note for total in totals.values() for note in total.notes)
    )
    return f"""# What the results were measured on

{WRITTEN}

Each column is a committed result set; its own page has the rest: interfaces, variables, each job's nodes. *Not recorded*: the
measuring code of that day did not look. {tables.ABSENT}: there is none, or the machine does not show it.

{table}

{notes}
Measured by the authors in [`CITATION.cff`](CITATION.cff). Serial numbers and addresses are never recorded.
[`REPRODUCE.md`](REPRODUCE.md) says how each set is made again.
"""


def _answers(
    folder: Path, own: records.Records, origins: Sequence[Mapping[str, Any]], total: Any
) -> Iterator[tuple[str, str]]:
    import pandas as pd

    runs, flat = own.runs, pd.json_normalize(list(origins))

    def each(path: str) -> list[Any]:
        return [None if value is None or value != value else value for value in flat.get(path, [None] * len(flat))]

    def recorded(questions: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        for question, path in questions.items():
            known = flat[path].dropna() if path in flat else ()
            values = [" ".join(value) if isinstance(value, list) else value for value in known]
            yield question, _different(values) if path in flat else "not recorded"

    yield "hardware id", _different(runs.hardware_id)
    yield from recorded(MACHINE)
    topology = zip(*(each(f"hardware.cpu.{part}") for part in ("sockets", "cores", "threads_per_core")), strict=True)
    yield (
        "sockets x cores x threads",
        _different(f"{s} x {c // s} x {t}" if s and c and t else None for s, c, t in topology),
    )
    yield "memory", _different(f"{size / 2**30:.0f} GiB" if size else None for size in each("hardware.memory_bytes"))
    yield "accelerators", _different(_names(gpu.get("name") for gpu in gpus or ()) for gpus in each("hardware.gpus"))
    networks = zip(each("hardware.infiniband"), each("hardware.network"), strict=True)
    yield (
        "network",
        _different(_names([*map(_port, ports or ()), *map(_card, cards or ())]) for ports, cards in networks),
    )
    yield from recorded(SOFTWARE)
    jobs = {
        str(job.get("array_job_id") or job.get("id"))
        for job in (one.get("job") or {} for one in origins)
        if job.get("scheduler")
    }
    yield "jobs", f"{len(jobs)}: {_different(jobs)}" if jobs else tables.ABSENT
    cores = [f"CPU of {cores:g} core{'s' * (cores > 1)}" for cores in runs.threads_per_rank[runs.device == "cpu"]]
    yield "devices of a run", _different(cores + ["GPU"] * bool((runs.device != "cpu").any()))
    yield "nodes x ranks", _different(f"{run.nodes:.0f}x{run.ranks_per_node:.0f}" for run in runs.itertuples())
    rates = runs.link_gbit[runs.nodes > 1]
    yield "links between nodes", _different(f"{rate:g} Gbit/s" if pd.notna(rate) else "not limited" for rate in rates)
    yield (
        "measured",
        " to ".join(sorted({str(day)[:10] for day in (runs.started.min(), runs.started.max())}))
        if len(runs)
        else tables.ABSENT,
    )
    commits = zip(runs.commit, runs.dirty, strict=True)
    yield (
        "commit",
        _different(
            f"`{commit[: provenance.SHORT]}`{' (modified)' * bool(dirty)}" if commit else None
            for commit, dirty in commits
        ),
    )
    yield "digest of the measuring code", _different(f"`{digest}`" for digest in runs.digest)
    cluster = re.compile(
        f"-({'|'.join(map(re.escape, set(runs.hardware_id)))})$"
    )  # ends the names of a cluster's studies
    yield "studies", _different(f"`{cluster.sub('', path.stem)}`" for path in (folder / "studies").glob("*.json"))
    yield "runs", f"{len(runs)}" + f", {len(own.refused)} refused" * bool(own.refused)
    yield "compute", f"{style.number(total.core_hours)} core-hours, {style.number(total.gpu_hours)} GPU-hours"
    yield (
        "energy",
        f"{style.number(total.energy_kwh)} kWh of {total.counted} runs" if total.counted else "not counted",
    )


def _origins(folder: Path, runs: pd.DataFrame) -> list[Mapping[str, Any]]:
    return [read_json(folder / "runs" / run / "provenance.json") for run in runs.run_id]


def _different(values: Iterable[Any]) -> str:
    """Each once, numbers and names in their order, what is not known last."""
    seen = set(values)
    known = sorted(
        map(str, seen - {None}),
        key=lambda text: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)],
    )
    return ", ".join(known + [tables.ABSENT] * (None in seen or not seen))


def _names(names: Iterable[str | None]) -> str | None:
    """`4 x NVIDIA H100, 2 x another`."""
    known = [str(name) for name in names]
    return ", ".join(f"{known.count(name)} x {name}" for name in dict.fromkeys(known)) or None


def _port(port: Mapping[str, Any]) -> str:
    return f"{port.get('link_layer')} {port.get('rate')}"


def _card(card: Mapping[str, Any]) -> str:
    return f"{card.get('driver')}" + (f" {card['speed_mbps'] / 1000:g} Gbit/s" if card.get("speed_mbps") else "")


def _link(folder: Path) -> str:
    root = paths.root()
    return folder.relative_to(root).as_posix() if folder.is_relative_to(root) else folder.as_posix()
