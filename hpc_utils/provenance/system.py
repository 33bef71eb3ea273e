"""SYSTEM.md: the machines, the software and the code that a set of runs was measured with."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .digest import of_rule

Record = Mapping[str, Any]
UNKNOWN, NOT_RECORDED, NONE = "not known", "not recorded", "none"
SHOWN = 8  # distinct values in one cell

PROCESSOR = {
    "CPU": "model",
    "sockets": "sockets",
    "physical cores": "cores",
    "logical CPUs": "logical",
    "logical CPUs usable by a run": "usable",
    "threads a core": "threads_per_core",
    "NUMA nodes": "numa_nodes",
    "instruction sets": "flags",
    "caches of a core": "caches",
    "governor": "governor",
    "virtual machine": "virtual",
}
HOST = {
    "operating system": ("os", UNKNOWN),
    "kernel": ("kernel", UNKNOWN),
    "C library": ("libc", UNKNOWN),
    "container": ("container", NONE),
    "modules": ("modules", NONE),
}
LATER = ("blas", "onednn", "slurm")  # versions that the first runs did not record


def write_system(provenances: Iterable[Record], path: Path) -> None:
    """Write SYSTEM.md as a whole or not at all."""
    from hpc_utils.records import atomic

    atomic.write_text(Path(path), system_markdown(provenances))


def system_markdown(provenances: Iterable[Record]) -> str:
    """One section for each distinct hardware; equal records give equal text, in whatever order they come."""
    groups: defaultdict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in provenances:
        groups[_kind(record)].append(record)
    lines = ["# System", ""]
    if not groups:
        lines += ["No run has recorded where it comes from.", ""]
    for kind in sorted(groups):
        lines += _section(kind, groups[kind])
    return "\n".join(lines)


def _kind(record: Record) -> tuple[str, ...]:
    """What puts two runs into one section: counts may differ from job to job, names may not."""
    machine = record.get("hardware") or {}
    model = (machine.get("cpu") or {}).get("model") or f"CPU {UNKNOWN}"
    names = sorted({str(gpu.get("name")) for gpu in machine.get("gpus") or ()})
    return (record.get("hardware_id") or UNKNOWN, model, *(names or ["no GPU"]))


def _section(kind: Sequence[str], records: list[Record]) -> list[str]:
    machines = _parts(records, "hardware")
    hosts = {one["hostname"] for one in _parts(records, "host") if one.get("hostname")}
    days = sorted(str(record["collected_at"])[:10] for record in records if record.get("collected_at"))
    span = f", {days[0]} to {days[-1]}" if days else ""
    return [
        f"## {_cell(kind[0])}: {_cell(', '.join(kind[1:]))}",
        "",
        f"{_count(len(records), 'run')} on {_count(len(hosts), 'host') if hosts else f'hosts {UNKNOWN}'}{span}.",
        "",
        *_processor(machines),
        *_gpus(machines),
        *_network(machines),
        *_software(records),
        *_code(records),
        *_jobs(_parts(records, "job")),
        *_faults([*records, *machines]),
    ]


def _processor(machines: list[Record]) -> list[str]:
    processors = _parts(machines, "cpu")
    rows = [(label, _values(processors, key)) for label, key in PROCESSOR.items()]
    return _table(("processor and memory", ""), [*rows, ("memory", _values(machines, "memory_bytes", say=_gib))])


def _gpus(machines: list[Record]) -> list[str]:
    seen = set()
    for machine in machines:
        kinds = Counter(
            (_say(gpu.get("name")), _gib(gpu.get("memory_bytes")), _say(gpu.get("driver")), _pcie(gpu))
            for gpu in machine.get("gpus") or ()
        )
        seen |= {(name, str(count), *rest) for (name, *rest), count in kinds.items()}
    if not seen:
        return ["No GPU found." if any("gpus" in machine for machine in machines) else f"GPUs {UNKNOWN}.", ""]
    lines = _table(("GPU", "seen by a run", "memory", "driver", "PCIe"), sorted(seen))
    for matrix in sorted({machine["nvlink"] for machine in machines if machine.get("nvlink")}):
        lines += ["```text", matrix, "```", ""]
    return lines


def _network(machines: list[Record]) -> list[str]:
    ports = {
        (_say(one.get("name")), _say(one.get("driver")), _speed(one.get("speed_mbps")))
        for machine in machines
        for one in machine.get("network") or ()
    }
    ports |= {
        (f"{one.get('device')} port {one.get('port')}", _say(one.get("link_layer")), _say(one.get("rate")))
        for machine in machines
        for one in machine.get("infiniband") or ()
    }
    if not ports:
        listed = any(machine.get("network") is not None for machine in machines)
        return ["No network interface." if listed else f"Network {UNKNOWN}.", ""]
    return _table(("network", "driver or link", "speed"), sorted(ports))


def _software(records: list[Record]) -> list[str]:
    hosts, versions, settings = (_parts(records, name) for name in ("host", "versions", "environment"))
    rows = [(label, _values(hosts, key, none)) for label, (key, none) in HOST.items()]
    rows += [(name, _values(versions, name, NONE)) for name in sorted({*LATER, *_keys(versions)})]
    settings = [dict.fromkeys(_keys(settings)) | setting for setting in settings]
    variables = [(f"`{name}`", _values(settings, name, "unset")) for name in sorted(_keys(settings))]
    return _table(("software", "version"), rows) + (_table(("variable", "value"), variables) if variables else [])


def _code(records: list[Record]) -> list[str]:
    states = {True: "with uncommitted changes", False: "clean"}
    seen = Counter(
        (
            f"`{record['commit']}`" if record.get("commit") else f"{UNKNOWN} (copied tree)",
            states.get(record.get("dirty"), UNKNOWN) if record.get("commit") else "",
            f"`{record['digest']}`{of_rule(record)}" if record.get("digest") else UNKNOWN,
        )
        for record in records
    )
    rows = [(*row, str(count)) for row, count in sorted(seen.items())]
    return _table(("commit", "tree", "digest of the measuring code", "runs"), rows)


def _jobs(jobs: list[Record]) -> list[str]:
    alone = sum(not one.get("scheduler") for one in jobs)
    seen: defaultdict[tuple[str, ...], list[Record]] = defaultdict(list)
    for one in jobs:
        if one.get("scheduler"):
            kind = tuple(_say(one.get(key)) for key in ("name", "partition", "nodes", "nodelist", "restart_count"))
            seen[kind].append(one)
    rows = [(_numbers(own), *kind, str(len(own))) for kind, own in sorted(seen.items())]
    header = ("jobs", "name", "partition", "nodes", "node list", "restarts", "runs")
    return [
        *(_table(header, rows) if rows else []),
        *([f"{_count(alone, 'run')} outside a scheduler.", ""] if alone else []),
    ]


def _numbers(jobs: Sequence[Record]) -> str:
    """Their numbers, an array's tasks in one: `slurm 28_[0-9], 42`."""
    arrays: defaultdict[str, set[int]] = defaultdict(set)
    for one in jobs:
        array = one.get("array_job_id")
        arrays[str(array or one.get("id"))] |= {int(one.get("array_task_id") or 0)} if array else set()
    ordered = sorted(arrays.items(), key=lambda item: (not item[0].isdigit(), item[0].zfill(20)))
    return f"{jobs[0]['scheduler']} {', '.join(number + _tasks(sorted(tasks)) for number, tasks in ordered)}"


def _tasks(numbers: Sequence[int]) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1][1:] = [number]
        else:
            spans.append([number])
    text = ",".join("-".join(map(str, span)) for span in spans)
    return f"_[{text}]" if len(numbers) > 1 else f"_{text}" if text else ""


def _faults(records: list[Record]) -> list[str]:
    faults = sorted({fault for one in records for fault in one.get("faults") or ()})
    return ["What could not be read:", "", *(f"- {_cell(fault)}" for fault in faults), ""] if faults else []


def _parts(records: Iterable[Record], key: str) -> list[Record]:
    return [record.get(key) or {} for record in records]


def _keys(tables: Iterable[Record]) -> set[str]:
    return {key for table in tables for key in table}


def _values(tables: Sequence[Record], key: str, none: str = UNKNOWN, say: Callable[[Any], str] | None = None) -> str:
    """The values that occur, each once; numbers in their order, absence last."""
    seen = {tuple(value) if isinstance(value := table[key], list) else value for table in tables if key in table}
    if not seen:
        return NOT_RECORDED
    known = sorted(seen - {None}, key=lambda one: (isinstance(one, str), one))
    words = list(dict.fromkeys(map(say or _say, known[:SHOWN]))) + ([none] if None in seen else [])
    return ", ".join(words) + (f" and {len(known) - SHOWN} more" if len(known) > SHOWN else "")


def _say(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(value) or UNKNOWN
    return UNKNOWN if value is None else str(value)


def _pcie(gpu: Record) -> str:
    generation, width = gpu.get("pcie_generation"), gpu.get("pcie_width")
    return f"gen {generation} x{width}" if generation and width else UNKNOWN


def _speed(mbps: Any) -> str:
    return f"{mbps / 1000:g} Gb/s" if mbps else UNKNOWN


def _gib(size: Any) -> str:
    return f"{size / 2**30:.0f} GiB" if size else UNKNOWN


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [*(f"| {' | '.join(map(_cell, line))} |" for line in lines), ""]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
