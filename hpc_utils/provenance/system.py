"""SYSTEM.md: the machines, the software and the code that a set of runs was measured with."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .machine import fingerprint

Record = Mapping[str, Any]
UNKNOWN = "not known"
SHOWN = 8  # distinct values in one cell


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
    rows = [("CPU", _distinct(one.get("model") for one in processors))]
    rows += [(label, _distinct(one.get(key) for one in processors)) for label, key in counts.items()]
    rows += [("instruction sets", _distinct(" ".join(one.get("flags") or ()) or None for one in processors))]
    return _table(("processor and memory", ""), [*rows, ("memory", _distinct(memory))])


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
    tables = [record.get("versions") or {} for record in records]
    names = dict.fromkeys(name for table in tables for name in table)
    rows += [(name, _distinct((table.get(name) for table in tables), "none")) for name in sorted(names)]
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
            f"`{record['digest']}`" if record.get("digest") else UNKNOWN,
        )
        for record in records
    )
    return _table(("commit", "tree", "digest of the measuring code", "runs"), _counted(seen))


def _jobs(records: list[Record]) -> list[str]:
    jobs = [record.get("job") or {} for record in records]
    alone = sum(not one.get("scheduler") for one in jobs)
    seen = Counter(
        (
            f"{one['scheduler']} {_number(one)}",
            *(_say(one.get(key)) for key in ("name", "partition", "nodes", "nodelist", "restart_count")),
        )
        for one in jobs
        if one.get("scheduler")
    )
    header = ("job", "name", "partition", "nodes", "node list", "restarts", "runs")
    lines = _table(header, _counted(seen)) if seen else []
    return [*lines, f"{_count(alone, 'run')} outside a scheduler.", ""] if alone else lines


def _faults(records: list[Record], machines: list[Record]) -> list[str]:
    faults = {fault for one in (*records, *machines) for fault in one.get("faults") or ()}
    return ["What could not be read:", "", *(f"- {_cell(fault)}" for fault in sorted(faults)), ""] if faults else []


def _number(job: Record) -> str:
    if job.get("array_job_id"):
        return f"{job['array_job_id']}_{job.get('array_task_id')}"
    return _say(job.get("id"))


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


def _counted(seen: Counter[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [(*row, str(count)) for row, count in sorted(seen.items())]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [*(f"| {' | '.join(map(_cell, line))} |" for line in lines), ""]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
