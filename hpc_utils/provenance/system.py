"""SYSTEM.md: the machines, the software and the code that a set of runs was measured with."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .digest import of_rule
from .machine import fingerprint

Record = Mapping[str, Any]
UNKNOWN, UNRECORDED = "not known", "not recorded"
SHOWN = 8  # distinct values in one cell
LATER = ("blas", "onednn", "slurm")  # versions that the first runs did not record


def write_system(provenances: Iterable[Record], path: Path) -> None:
    """Write SYSTEM.md as a whole or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8", newline="\n") as file:
            file.write(system_markdown(provenances))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


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
    name = record.get("hardware_id") or fingerprint(machine)
    model = _get(machine, "cpu", "model") or f"CPU {UNKNOWN}"
    return (name, model, *(sorted({str(gpu.get("name")) for gpu in machine.get("gpus") or ()}) or ["no GPU"]))


def _section(kind: Sequence[str], records: list[Record]) -> list[str]:
    machines = [record.get("hardware") or {} for record in records]
    hosts = {name for record in records if (name := _get(record, "host", "hostname"))}
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
        *_jobs(records),
        *_faults(records, machines),
    ]


def _processor(machines: list[Record]) -> list[str]:
    processors = [machine.get("cpu") or {} for machine in machines]
    counts = {
        "sockets": "sockets",
        "physical cores": "cores",
        "logical CPUs": "logical",
        "logical CPUs usable by a run": "usable",
        "threads a core": "threads_per_core",
        "NUMA nodes": "numa_nodes",
    }
    memory = [_gib(machine.get("memory_bytes")) for machine in machines]
    kinds = {True: "yes", False: "no"}
    virtual = [one | {"virtual": kinds.get(one["virtual"])} for one in processors if "virtual" in one]
    rows = [("CPU", _distinct(one.get("model") for one in processors))]
    rows += [(label, _distinct(one.get(key) for one in processors)) for label, key in counts.items()]
    rows += [("instruction sets", _distinct(" ".join(one.get("flags") or ()) or None for one in processors))]
    rows += [
        (label, _later(processors, key)) for label, key in (("caches of a core", "caches"), ("governor", "governor"))
    ]
    rows += [("virtual machine", _later(virtual, "virtual")), ("memory", _distinct(memory))]
    return _table(("processor and memory", ""), rows)


def _gpus(machines: list[Record]) -> list[str]:
    seen = set()
    for machine in machines:
        kinds = Counter(
            (_say(gpu.get("name")), _gib(gpu.get("memory_bytes")) or UNKNOWN, _say(gpu.get("driver")), _pcie(gpu))
            for gpu in machine.get("gpus") or ()
        )
        seen |= {(name, str(count), *rest) for (name, *rest), count in kinds.items()}
    if not seen:
        return ["No GPU found.", ""] if any("gpus" in machine for machine in machines) else [f"GPUs {UNKNOWN}.", ""]
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
        told = any(machine.get("network") is not None for machine in machines)
        return ["No network interface." if told else f"Network {UNKNOWN}.", ""]
    return _table(("network", "driver or link", "speed"), sorted(ports))


def _software(records: list[Record]) -> list[str]:
    rows = [
        (label, _distinct(_get(record, "host", key) for record in records))
        for label, key in (("operating system", "os"), ("kernel", "kernel"))
    ]
    hosts = [record.get("host") or {} for record in records]
    rows += [("C library", _later(hosts, "libc"))]
    rows += [
        (label, _later(hosts, key, "none")) for label, key in (("container", "container"), ("modules", "modules"))
    ]
    tables = [record.get("versions") or {} for record in records]
    names = {*LATER, *(name for table in tables for name in table)}
    rows += [(name, _later(tables, name, "none")) for name in sorted(names)]
    settings = [record.get("environment") or {} for record in records]
    variables = sorted({name for setting in settings for name in setting})
    set_to = [(f"`{name}`", _distinct((one.get(name) for one in settings), "unset")) for name in variables]
    return _table(("software", "version"), rows) + (_table(("variable", "value"), set_to) if set_to else [])


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
    return _table(("commit", "tree", "digest of the measuring code", "runs"), _counted(seen))


def _jobs(records: list[Record]) -> list[str]:
    jobs = [record.get("job") or {} for record in records]
    alone = sum(not one.get("scheduler") for one in jobs)
    seen: defaultdict[tuple[str, ...], list[Record]] = defaultdict(list)
    for one in jobs:
        if one.get("scheduler"):
            seen[
                tuple(_say(one.get(key)) for key in ("name", "partition", "nodes", "nodelist", "restart_count"))
            ].append(one)
    rows = [(_numbers(own), *kind, str(len(own))) for kind, own in sorted(seen.items())]
    header = ("jobs", "name", "partition", "nodes", "node list", "restarts", "runs")
    lines = _table(header, rows) if rows else []
    return [*lines, f"{_count(alone, 'run')} outside a scheduler.", ""] if alone else lines


def _faults(records: list[Record], machines: list[Record]) -> list[str]:
    faults = {fault for one in (*records, *machines) for fault in one.get("faults") or ()}
    return ["What could not be read:", "", *(f"- {_cell(fault)}" for fault in sorted(faults)), ""] if faults else []


def _numbers(jobs: Sequence[Record]) -> str:
    """Their numbers, an array's tasks in one: `slurm 28_[0-9], 42`."""
    arrays: defaultdict[str, set[int]] = defaultdict(set)
    alone = set()
    for one in jobs:
        if one.get("array_job_id"):
            arrays[str(one["array_job_id"])].add(int(one.get("array_task_id") or 0))
        else:
            alone.add(_say(one.get("id")))
    told = [(number, f"{number}_{_tasks(sorted(tasks))}") for number, tasks in arrays.items()]
    told += [(number, number) for number in alone]
    words = [text for _, text in sorted(told, key=lambda pair: (not pair[0].isdigit(), pair[0].zfill(20)))]
    return f"{jobs[0]['scheduler']} {', '.join(words)}"


def _tasks(numbers: Sequence[int]) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    told = ",".join(f"{first}-{last}" if last > first else str(first) for first, last in spans)
    return told if len(numbers) == 1 else f"[{told}]"


def _pcie(gpu: Record) -> str:
    generation, width = gpu.get("pcie_generation"), gpu.get("pcie_width")
    return f"gen {generation} x{width}" if generation and width else UNKNOWN


def _speed(mbps: Any) -> str:
    return f"{mbps / 1000:g} Gb/s" if mbps else UNKNOWN


def _gib(size: Any) -> str | None:
    return f"{size / 2**30:.0f} GiB" if size else None


def _get(record: Record, *keys: str) -> Any:
    value: Any = record
    for key in keys:
        value = (value or {}).get(key)
    return value


def _say(value: Any) -> str:
    return UNKNOWN if value is None else str(value)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _distinct(values: Iterable[Any], absent: str = UNKNOWN) -> str:
    """The values that occur, each once; numbers in their order, absence last."""
    seen = set(values)
    told = sorted((one for one in seen if one is not None), key=lambda one: (isinstance(one, str), one))
    words = [str(one) for one in told[:SHOWN]] + ([absent] if None in seen else [])
    return ", ".join(words) + (f" and {len(told) - SHOWN} more" if len(told) > SHOWN else "")


def _later(tables: Sequence[Record], key: str, absent: str = UNKNOWN) -> str:
    """What those tables say that have the key: older runs did not record it, which is not that nothing was there."""
    told = [table[key] for table in tables if key in table]
    return _distinct(told, absent) if told else UNRECORDED


def _counted(seen: Counter[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [(*row, str(count)) for row, count in sorted(seen.items())]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [*(f"| {' | '.join(map(_cell, line))} |" for line in lines), ""]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
