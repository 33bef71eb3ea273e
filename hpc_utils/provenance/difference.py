"""What differs between the provenances of two runs: code, software, machine, surroundings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Record = Mapping[str, Any]
SHORT = 12  # digits of a digest, a fingerprint or a commit, as they are quoted
MACHINE = {
    "model": "processor", "sockets": "sockets", "cores": "physical cores", "usable": "usable CPUs",
    "threads_per_core": "threads a core", "numa_nodes": "NUMA nodes", "governor": "frequency governor",
}  # fmt: skip
HOST = {
    "os": "operating system",
    "kernel": "kernel",
    "libc": "C library",
    "container": "container",
    "modules": "modules",
}
JOB = {"scheduler": "scheduler", "partition": "partition", "nodes": "nodes of the job"}


class Difference(NamedTuple):
    """`what` was `then` and is `now`, in words."""

    what: str
    then: str
    now: str


def differences(then: Record, now: Record) -> list[Difference]:
    """The differences of two records, as of `provenance.collect`, the code first. What one of them does not hold, because an
    older version did not record it, is no difference."""
    return [one for one in _pairs(then, now) if one.then != one.now]


def _pairs(*sides: Record) -> Iterator[Difference]:
    if len({one.get("digest_rule") for one in sides}) == 1:  # else the digests differ whatever the code
        yield Difference("digest of the measuring code", *(_say((one.get("digest") or "")[:SHORT]) for one in sides))
    yield Difference("commit", *(_commit(one) for one in sides))
    yield Difference("hardware", *(_say(one.get("hardware_id")) for one in sides))
    machines = _parts(sides, "hardware")
    yield from _table(_parts(machines, "cpu"), MACHINE)
    yield from _flags(*((one.get("cpu") or {}).get("flags") for one in machines))
    if None not in (sizes := [one.get("memory_bytes") for one in machines]):
        yield Difference("memory", *(f"{size / 2**30:.0f} GiB" for size in sizes))
    yield Difference("GPUs", *(_gpus(one) for one in machines))
    yield from _table(_parts(sides, "versions"))
    yield from _table(_parts(sides, "host"), HOST)
    yield from _table(sides, {"start": "start of the ranks"})
    yield from _table(_parts(sides, "job"), JOB)
    settings = _parts(sides, "environment")
    for name in sorted({*settings[0], *settings[1]}):
        yield Difference(name, *(str(one.get(name, "unset")) for one in settings))


def _parts(sides: tuple[Record, ...] | list[Record], key: str) -> list[Record]:
    return [one.get(key) or {} for one in sides]


def _table(sides: tuple[Record, ...] | list[Record], names: Mapping[str, str] | None = None) -> Iterator[Difference]:
    for name in names or sorted({*sides[0], *sides[1]}):
        if all(name in side for side in sides):
            yield Difference((names or {}).get(name, name), *(_say(side[name]) for side in sides))


def _flags(then: list[str] | None, now: list[str] | None) -> Iterator[Difference]:
    if then is not None and now is not None and set(then) != set(now):
        only = [" ".join(sorted(set(one) - set(other))) for one, other in ((then, now), (now, then))]
        yield Difference("instruction sets", *(f"also {own}" if own else "the same without these" for own in only))


def _gpus(machine: Record) -> str:
    names = [str(gpu.get("name")) for gpu in machine.get("gpus") or ()]
    return _say(", ".join(f"{names.count(name)} x {name}" for name in sorted(set(names))))


def _commit(record: Record) -> str:
    known = (record.get("commit") or "")[:SHORT]
    return f"{known}{' with uncommitted changes' if record.get('dirty') else ''}" if known else "not known"


def _say(value: Any) -> str:
    return "none" if value in (None, "") else str(value)
