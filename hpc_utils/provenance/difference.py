"""What differs between the provenances of two runs: code, software, machine, surroundings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

SHORT = 12  # digits of a digest, a fingerprint or a commit, as people quote them
ABSENT = "none"
MACHINE = {
    "model": "processor", "sockets": "sockets", "cores": "physical cores", "usable": "usable CPUs",
    "threads_per_core": "threads a core", "numa_nodes": "NUMA nodes", "governor": "frequency governor",
}  # fmt: skip
JOB = {
    "scheduler": "scheduler",
    "version": "scheduler's version",
    "partition": "partition",
    "nodes": "nodes of the job",
}
HOST = {
    "os": "operating system",
    "kernel": "kernel",
    "libc": "C library",
    "container": "container",
    "modules": "modules",
}


class Difference(NamedTuple):
    """`what` was `then` and is `now`, as people read it."""

    what: str
    then: str
    now: str


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    """What two records, as of `provenance.collect`, say differently, the code first; where one of them is silent, because an
    older version did not record it, nothing is known to differ."""
    return [one for one in _pairs(then, now) if one.then != one.now]


def _pairs(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Difference]:
    if then.get("digest_rule") == now.get("digest_rule"):  # else the digests differ whatever the code
        digests = (_say(_short(one.get("digest"))) for one in (then, now))
        yield Difference("digest of the measuring code", *digests)
    yield Difference("commit", _commit(then), _commit(now))
    yield Difference("hardware", _say(then.get("hardware_id")), _say(now.get("hardware_id")))
    machines = [one.get("hardware") or {} for one in (then, now)]
    yield from _table([one.get("cpu") or {} for one in machines], MACHINE)
    yield from _sets("instruction sets", *((one.get("cpu") or {}).get("flags") for one in machines))
    if None not in (sizes := [one.get("memory_bytes") for one in machines]):
        yield Difference("memory", *(f"{size / 2**30:.0f} GiB" for size in sizes))
    yield Difference("GPUs", *(_gpus(one) for one in machines))
    yield from _table([one.get("versions") or {} for one in (then, now)])
    yield from _table([one.get("host") or {} for one in (then, now)], HOST)
    yield from _table([then, now], {"start": "start of the ranks"})
    yield from _table([one.get("job") or {} for one in (then, now)], JOB)
    settings = [one.get("environment") or {} for one in (then, now)]
    for name in sorted({*settings[0], *settings[1]}):
        yield Difference(name, *(str(one.get(name, "unset")) for one in settings))


def _table(sides: list[Mapping[str, Any]], names: Mapping[str, str] | None = None) -> Iterator[Difference]:
    for name in names or sorted({*sides[0], *sides[1]}):
        if all(name in side for side in sides):
            yield Difference((names or {}).get(name, name), *(_say(side[name]) for side in sides))


def _sets(what: str, then: list[str] | None, now: list[str] | None) -> Iterator[Difference]:
    if then is not None and now is not None:
        only = [" ".join(sorted(set(one) - set(other))) for one, other in ((then, now), (now, then))]
        yield (
            Difference(what, *(f"also {own}" if own else "the same without these" for own in only))
            if any(only)
            else Difference(what, "", "")
        )


def _gpus(machine: Mapping[str, Any]) -> str:
    names = [str(gpu.get("name")) for gpu in machine.get("gpus") or ()]
    return ", ".join(f"{names.count(name)} x {name}" for name in sorted(set(names))) or ABSENT


def _commit(record: Mapping[str, Any]) -> str:
    known = _short(record.get("commit"))
    return f"{known}{' with uncommitted changes' if record.get('dirty') else ''}" if known else "not known"


def _short(text: str | None) -> str | None:
    return text[:SHORT] if text else None


def _say(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or ABSENT
    return ABSENT if value is None else str(value)
