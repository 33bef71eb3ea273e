"""The processor: its model, and the logical CPUs of its cores."""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from .tools import number, read_text, run_tool

MACHINE = Path("/")
# Instruction sets that decide which kernels a CPU build of torch takes.
FLAGS = re.compile(
    r"avx|avx2|fma|f16c|avx512(f|bw|_vnni|_bf16|_fp16)|avx_vnni|amx_(tile|int8|bf16)"  # x86
    r"|asimd(hp|dp)?|sve|sve2|i8mm|(sve)?bf16|sme"  # Arm
)

# With one of these torch computes bf16 in the processor's vectors (oneDNN's documentation, "Data Types": AVX-512 and
# later; on Arm FEAT_BF16); without, one number after another.
BF16 = {"avx512bw", "avx512_bf16", "amx_bf16", "bf16", "svebf16"}


@dataclass(frozen=True)
class Cpu:
    """The processor; None: not known.

    Attributes:
        sockets, cores, logical: their numbers; `logical` counts the CPUs that the system schedules.
        flags: instruction sets (`FLAGS`). caches, governor: of the first core. virtual: of a virtual machine.
        usable: logical CPUs that this process may use.
    """

    model: str | None = None
    sockets: int | None = None
    cores: int | None = None
    logical: int | None = None
    flags: list[str] = field(default_factory=list)
    numa_nodes: int | None = None
    caches: str | None = None
    governor: str | None = None
    virtual: bool | None = None
    threads_per_core: int | None = None
    usable: int | None = None


def cpu(machine: Path = MACHINE) -> Cpu:
    """The processor of this machine."""
    processor = _linux(machine)
    threads = processor.logical // processor.cores if processor.cores and processor.logical else None
    return replace(processor, threads_per_core=threads, usable=len(usable()))


@functools.cache  # called for every point of a study
def emulates_bf16(machine: Path = MACHINE) -> bool:
    """Whether this processor has no instructions for bf16; False if nothing is known of them."""
    flags = set(cpu(machine).flags)
    return bool(flags) and not flags & BF16


def usable() -> list[int]:
    """The logical CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def core_groups(machine: Path = MACHINE, allowed: Iterable[int] | None = None) -> list[list[int]]:
    """The usable logical CPUs, grouped by physical core; cores of one socket and NUMA node are neighbours."""
    allowed = set(usable() if allowed is None else allowed)
    nodes = _nodes(machine)
    cores = {tuple(sorted(allowed.intersection(_siblings(logical, machine)))) for logical in allowed}
    return [list(core) for core in sorted(cores, key=lambda c: (_package(c[0], machine), nodes.get(c[0], 0), c))]


def _linux(machine: Path) -> Cpu:
    entry: dict[str, str] = {}
    with suppress(OSError), (machine / "proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
        for line in itertools.takewhile(str.strip, lines):  # the first processor's entry
            name, _, value = line.partition(":")
            entry[name.strip()] = value.strip()
    system = machine / "sys/devices/system/cpu"
    online = list(numbers(read_text(system / "online"))) or list(range(os.cpu_count() or 1))
    has_topology = _topology(online[0], machine).is_dir()
    flags = (entry.get("flags") or entry.get("Features") or "").split()
    return Cpu(
        model=entry.get("model name") or _arm_model() or entry.get("cpu") or os.uname().machine,
        sockets=len({_package(logical, machine) for logical in online}) if has_topology else None,
        cores=len({_siblings(logical, machine) for logical in online})
        if has_topology
        else psutil.cpu_count(logical=False),
        logical=len(online),
        flags=sorted(filter(FLAGS.fullmatch, flags)),
        numa_nodes=len(set(_nodes(machine).values())) or None,
        caches=_caches(machine),
        governor=read_text(system / "cpu0/cpufreq/scaling_governor"),
        virtual="hypervisor" in flags if flags else None,
    )


def _caches(machine: Path) -> str | None:
    """The caches of the first core, such as `L1d 32K, L2 1024K, L3 32768K`."""
    caches = {}
    for folder in (machine / "sys/devices/system/cpu/cpu0/cache").glob("index*"):
        level, kind, size = (read_text(folder / name) for name in ("level", "type", "size"))
        if size and kind != "Instruction":
            caches[f"L{level}{'d' if kind == 'Data' else ''}"] = size
    return ", ".join(f"{name} {size}" for name, size in sorted(caches.items())) or None


def _arm_model() -> str | None:
    """The model's name by `lscpu`: Arm's cpuinfo states part numbers only."""
    match = re.search(r"^Model name:\s*(\w.*)$", run_tool("lscpu") or "", re.MULTILINE)
    return match and match[1].strip()


def _topology(logical: int, machine: Path) -> Path:
    return machine / f"sys/devices/system/cpu/cpu{logical}/topology"


def _siblings(logical: int, machine: Path) -> tuple[int, ...]:
    return tuple(numbers(read_text(_topology(logical, machine) / "thread_siblings_list"))) or (logical,)


def _package(logical: int, machine: Path) -> int:
    return number(read_text(_topology(logical, machine) / "physical_package_id")) or 0


def _nodes(machine: Path) -> dict[int, int]:
    """Each logical CPU's NUMA node."""
    folders = (machine / "sys/devices/system/node").glob("node[0-9]*")
    return {logical: int(folder.name[4:]) for folder in folders for logical in numbers(read_text(folder / "cpulist"))}


def numbers(text: str | None) -> Iterator[int]:
    """`0-2,8` counts 0, 1, 2, 8."""
    for part in (text or "").split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit():
            yield from range(int(first), int(last or first) + 1)
