"""A rehearsal cluster's links, as fast as a run wants them for as long as it is measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpc_utils.launch.cluster import Cluster
    from hpc_utils.launch.request import Request


@contextmanager
def held_for(request: Request, *, on_nodes: bool) -> Iterator[None]:
    """Limit the links of the nodes that this job is on, as the run's `link_gbit` says, until the block ends.

    A run that asks for nothing is held to what its hardware id says of links limited by hand. Elsewhere there is
    nothing to hold.

    Args:
        on_nodes: the run's ranks are started on the job's nodes, not by this process beside itself.

    Raises:
        ConfigError: there are no links to limit here, or they are not what the run's id says, or both it and `link_gbit`
            say something of them.
        ClusterError: something else is measured now over links of another rate.
    """
    from hpc_utils import rehearsal, workspace
    from hpc_utils.config import ConfigError

    gbit = request.config.link_gbit
    if gbit is not None:
        _require_no_other()
    found = rehearsal.around() if on_nodes and workspace.environment().get("SLURM_JOB_ID") else None
    if found is None or found.flat:
        if gbit is not None:
            raise ConfigError(
                f"link_gbit={gbit:g}: here are no links that could be limited. A job on a rehearsal cluster that was "
                f"started with root has them: hpc submit STUDY --cluster rehearsal"
            )
        yield
        return
    rate = _as_named(found.by_hand) if gbit is None else rehearsal.rate_of(gbit)
    with found.holding(rate, by=request.run_id):
        yield


def held_as_named(cluster: Cluster, by: str) -> AbstractContextManager[None]:
    """Keep a rehearsal's links as `cluster`'s hardware id says until the block ends; elsewhere nobody changes them.

    Raises:
        ClusterError: something else is measured now over links of another rate.
    """
    from hpc_utils import rehearsal

    found = rehearsal.around() if cluster.links is not None else None
    return nullcontext() if found is None else found.holding(cluster.links or None, by=by)


def _require_no_other() -> None:
    """ConfigError if the run's id says what links are limited to by hand: it would then be named for other links."""
    from hpc_utils import provenance
    from hpc_utils.config import ConfigError

    hardware = provenance.hardware_id()
    if named := provenance.HardwareId.parse(hardware).links:
        raise ConfigError(
            f"link_gbit is given, but the run was named for links of {named} ({hardware}): `hpc cluster shape --rate none`, "
            f"then submit it again (by hand: first `hpc cluster use NAME`)"
        )


def _as_named(rate: str | None) -> str | None:
    """`rate`, the links' by hand, if the run's id says the same."""
    from hpc_utils import provenance
    from hpc_utils.config import ConfigError

    hardware = provenance.hardware_id()
    named = provenance.HardwareId.parse(hardware).links
    if named == (rate or ""):
        return rate
    raise ConfigError(
        f"the nodes' links are {f'limited to {rate}' if rate else 'not limited'} now, but this run was named for "
        f"{f'links of {named}' if named else 'links as fast as the machine'} ({hardware}): "
        f"`hpc cluster shape --rate {named or 'none'}`, or submit it again (by hand: first `hpc cluster use NAME`)"
    )
