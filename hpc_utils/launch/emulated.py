"""What an emulated run needs before it can be named: a compute profile, and a dilation that keeps it honest.

The ranks share this machine's cores, so a real all-reduce between them costs processor time that no link would. It may
cost at most a tenth of what the limited links make of it (`SHARE`); where it costs more, compute and links are slowed
together by a factor k until it does not.
"""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hpc_utils import provenance
from hpc_utils.collective import Link, Topology, ring
from hpc_utils.config import ConfigError, RunConfig
from hpc_utils.records import compute_profile, probes
from hpc_utils.records.compute_profile import NotMeasured, Profile

if TYPE_CHECKING:
    from .request import Layout

SHARE = 0.1  # of the shaped all-reduce, that the unshaped one may cost


class Unsettled(ConfigError):
    """What an emulated run follows from was not measured yet, or it would not be honest; says what to do."""


def settle(config: RunConfig, layout: Layout, hardware: str) -> RunConfig:
    """`config` with `profile` and `dilation` said, so that both are part of the run's identity.

    Args:
        hardware: the id of what the ranks will run on.

    Raises:
        Unsettled: what has to be measured first, with the command; no limited links; a dilation too small.
    """
    found = _profile(config, hardware)
    batch = config.batches(layout.ranks)[1]
    try:
        found.seconds(batch)
    except NotMeasured as error:
        raise Unsettled(
            f"device='emulated', {batch} samples a device: {error} in {found.name}: {command(config)} --batches {batch},..."
        ) from None
    least = 1 if layout.ranks == 1 else _least(found.gradient_bytes, config, layout, hardware)
    if config.dilation is not None and config.dilation < least:
        raise Unsettled(
            f"dilation={config.dilation:g} on {layout}: over links of {config.link_gbit:g} Gbit/s the processor's part of an "
            f"all-reduce of {found.gradient_bytes} bytes stays under {SHARE:.0%} from dilation={least} on (or none: chosen)"
        )
    return config.model_copy(update={"compute_profile": found.name, "dilation": config.dilation or float(least)})


def dilation(size: float, layout: Layout, link_gbit: float, unshaped: float) -> int:
    """The least whole k for which `unshaped` (s) is at most `SHARE` of a ring all-reduce of `size` bytes over links of
    `link_gbit` / k."""
    inter = Link(0.0, link_gbit * 1e9 / 8)
    shaped = ring(size, Topology(layout.nodes, layout.ranks_per_node, inter, Link(0.0, math.inf)))
    return max(1, math.ceil(unshaped / (SHARE * shaped) - 1e-9))


def unshaped_seconds(record: Mapping[str, Any], size: float) -> float:
    """Median seconds of an all-reduce of `size` bytes over all ranks, by a record of `hpc bench allreduce`.

    Raises:
        NotMeasured: `size` is far from all measured sizes.
    """
    samples = record["groups"]["all"]["samples"]
    points = sorted((one["bytes"], statistics.median(one["seconds"])) for one in samples)
    return compute_profile.interpolate(points, size)


def command(config: RunConfig) -> str:
    """The `hpc bench compute` that measures what `config` computes."""
    usual = RunConfig()
    names = ["workload", *(name for name in (*compute_profile.COMPUTED, "threads_per_rank") if name != "workload")]
    said = [
        name for name in names if getattr(config, name) != getattr(usual, name) or name in ("workload", "dataset")
    ]
    said = [name for name in said if name != "workload_args"]
    words = [f"{name}={getattr(config, name)}" for name in said]
    words += [f"workload_args.{name}={value}" for name, value in config.workload_args.items()]
    return shlex.join(["hpc", "bench", "compute", *(part for word in words for part in ("-p", word))])


def _profile(config: RunConfig, hardware: str) -> Profile:
    if config.compute_profile is None:
        machine = provenance.machine_in(hardware)
        found = compute_profile.newest(config, machine)
        if found is None:
            threads = config.threads_per_rank or 1
            raise Unsettled(
                f"device='emulated': nobody has measured what {config.workload} computes in {config.precision} with "
                f"{threads} thread{'s' * (threads > 1)} on this machine ({machine}): {command(config)}"
            )
        return found
    try:
        found = compute_profile.required(config)
    except ConfigError as error:
        raise Unsettled(str(error)) from None
    other = [name for name, value in compute_profile.computed(config).items() if found.record.get(name) != value]
    if other:
        raise Unsettled(f"compute_profile={found.name} was measured of another {', '.join(other)}: {command(config)}")
    return found


def _least(size: int, config: RunConfig, layout: Layout, hardware: str) -> int:
    if layout.nodes == 1 or config.link_gbit is None:
        why = (
            "ranks of one node talk over no link that could be limited: lay them out on nodes of a rehearsal cluster"
            if layout.nodes == 1
            else "without link_gbit no link is limited, so this would measure the processor that the ranks share"
        )
        raise Unsettled(f"device='emulated' on {layout}: {why}")
    asked = {"hardware_id": hardware, "nodes": layout.nodes, "ranks_per_node": layout.ranks_per_node}
    measure = (
        f"`hpc bench allreduce` on {layout.nodes} nodes x {layout.ranks_per_node} ranks of {hardware}, its links not "
        f"limited, messages of up to {size} bytes"
    )
    short = ""
    for record in probes.read("allreduce"):
        if any(record.get(name) != value for name, value in (asked | {"link_gbit": None}).items()):
            continue
        try:
            return dilation(size, layout, config.link_gbit, unshaped_seconds(record, size))
        except NotMeasured as error:  # a newer one of smaller messages does not hide an older one
            short = short or f"device='emulated' on {layout}: {error} bytes, in {record['name']}: {measure}"
    raise Unsettled(
        short or f"device='emulated' on {layout}: first measure what an all-reduce costs the processor: {measure}"
    )
