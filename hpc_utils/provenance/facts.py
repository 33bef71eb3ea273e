"""The facts of a provenance record in words, and the differences of two records."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

Record = Mapping[str, Any]
SHORT = 12  # digits of a digest, a fingerprint or a commit, as they are quoted
UNKNOWN, NONE = "not known", "none"


def _known(value: Any, none: str = UNKNOWN) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return none if value in (None, []) else " ".join(value) if isinstance(value, list) else str(value)


def _present(value: Any) -> str:
    return _known(value, NONE)


def _size(value: int | None) -> str:
    return f"{value / 2**30:.0f} GiB" if value else UNKNOWN


def _listed(words: Callable[[Record], str], absent: str = UNKNOWN, counted: bool = False) -> Callable[[Any], str]:
    """A function that describes devices, each by `words`, the same ones once behind their number."""

    def described(devices: Iterable[Record] | None) -> str:
        if devices is None:
            return absent
        kinds = Counter(map(words, devices))
        return ", ".join(sorted(f"{n} x {kind}" if counted else kind for kind, n in kinds.items())) or NONE

    return described


def _gpu(gpu: Record) -> str:
    return (
        f"{gpu.get('name')} ({_size(gpu.get('memory_bytes'))}, driver {_known(gpu.get('driver'))}, "
        f"PCIe gen {_known(gpu.get('pcie_generation'))} x{_known(gpu.get('pcie_width'))})"
    )


def _interface(interface: Record) -> str:
    mbps = interface.get("speed_mbps")
    return (
        f"{interface.get('name')} ({_known(interface.get('driver'))}, {f'{mbps / 1000:g} Gb/s' if mbps else UNKNOWN})"
    )


def _port(port: Record) -> str:
    return (
        f"{port.get('device')} port {port.get('port')} ({_known(port.get('link_layer'))}, {_known(port.get('rate'))})"
    )


# Label, path in a record, and the function that describes the value.
FACTS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("hardware", "hardware_id", _known),
    ("processor", "hardware.cpu.model", _known),
    ("sockets", "hardware.cpu.sockets", _known),
    ("physical cores", "hardware.cpu.cores", _known),
    ("logical CPUs", "hardware.cpu.logical", _known),
    ("logical CPUs usable by a run", "hardware.cpu.usable", _known),
    ("threads a core", "hardware.cpu.threads_per_core", _known),
    ("NUMA nodes", "hardware.cpu.numa_nodes", _known),
    ("instruction sets", "hardware.cpu.flags", _known),
    ("caches of a core", "hardware.cpu.caches", _known),
    ("governor", "hardware.cpu.governor", _known),
    ("virtual machine", "hardware.cpu.virtual", _known),
    ("memory", "hardware.memory_bytes", _size),
    ("GPUs", "hardware.gpus", _listed(_gpu, NONE, counted=True)),
    ("network", "hardware.network", _listed(_interface)),
    ("InfiniBand", "hardware.infiniband", _listed(_port)),
    ("operating system", "host.os", _known),
    ("kernel", "host.kernel", _known),
    ("C library", "host.libc", _known),
    ("container", "host.container", _present),
    ("modules", "host.modules", _present),
    ("start of the ranks", "start", _known),
    ("scheduler", "job.scheduler", _present),
    ("partition", "job.partition", _present),
    ("nodes of the job", "job.nodes", _present),
)


def facts(record: Record) -> dict[str, str]:
    """{label: words} of machine, software, job and environment, without those that the record lacks: older versions
    recorded less."""
    values = {}
    for label, path, words in FACTS:
        *folders, name = path.split(".")
        parent = functools.reduce(lambda value, key: value.get(key) or {}, folders, record)
        if name in parent:
            values[label] = words(parent[name])
    versions = record.get("versions") or {}
    return values | {name: _present(versions[name]) for name in sorted(versions)} | settings(record)


def settings(record: Record) -> dict[str, str]:
    """The environment variables that change measurements."""
    return dict(sorted((record.get("environment") or {}).items()))


class Difference(NamedTuple):
    """`what` was `then` and is `now`, in words."""

    what: str
    then: str
    now: str


def differences(before: Record, after: Record) -> list[Difference]:
    """The differences of two records, as of `provenance.collect`, the code first. A fact that one of them lacks is not a difference."""
    unset = dict.fromkeys([*settings(before), *settings(after)], "unset")
    sides = [{**_code(record), **unset, **facts(record)} for record in (before, after)]
    if before.get("digest_rule") != after.get("digest_rule"):  # the digests differ then, whatever the code
        del sides[0]["digest of the measuring code"]
    shared = [Difference(what, sides[0][what], sides[1][what]) for what in sides[0] if what in sides[1]]
    return [difference for difference in shared if difference.then != difference.now]


def _code(record: Record) -> dict[str, str]:
    commit = (record.get("commit") or UNKNOWN)[:SHORT]
    return {
        "digest of the measuring code": (record.get("digest") or NONE)[:SHORT],
        "commit": f"{commit}{' with uncommitted changes' if record.get('dirty') else ''}",
    }
