"""What is looked at, in this order: first what needs nothing, then what needs the ranks together."""

from __future__ import annotations

from . import (
    agreement,
    allreduce,
    binding,
    burn,
    clocks,
    data,
    device,
    gloo,
    gpus,
    group,
    loader,
    names,
    nccl,
    scheduler,
    storage,
    surroundings,
)
from .check import each
from .conduct import Probe

_DISK = (
    "the file system does not answer: ask the site's support, and meanwhile set HPC_RESULTS and HPC_DATA elsewhere"
)
_GPU = (
    "the driver does not answer: `nvidia-smi` (`rocm-smi`) will hang too; leave the node out (`--exclude`), tell the "
    "site's support"
)
_COLLECTIVE = (
    "a collective hangs: some ranks reach each other and some do not (firewall, several interfaces: set "
    "GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME), or a device is sick (`dmesg`, `nvidia-smi -q`)"
)
_NAMES = "the name service does not answer: look at /etc/resolv.conf and /etc/hosts of this node"

PLAN = (
    Probe(device.look, {"driver and torch": each(device.judge)}, 25, "node", stuck=_GPU),
    Probe(gpus.look, {"GPUs": gpus.judge}, 10, stuck=_GPU),
    Probe(agreement.look_software, {"software": agreement.judge_software}, 15, "node"),
    Probe(surroundings.look, {"environment": each(surroundings.judge)}, 10, "node"),
    Probe(
        scheduler.look,
        {"time limit": each(scheduler.judge_limit), "accounting": each(scheduler.judge_accounting)},
        20,
        "main",
        stuck="Slurm does not answer: is its controller up (`scontrol ping`)?",
    ),
    Probe(storage.look_results, {"results folder": each(storage.judge_results)}, 15, "node", stuck=_DISK),
    Probe(storage.look_links, {"hard links": each(storage.judge_links)}, 10, "node", stuck=_DISK),
    Probe(storage.look_shared, {"shared results": storage.judge_shared}, 12, "node", stuck=_DISK),
    Probe(storage.look_data, {"data folder": each(storage.judge_data)}, 12, "node", stuck=_DISK),
    Probe(data.look, {"data sets": data.judge}, 12, "node", stuck=_DISK),
    Probe(names.look, {"names": each(names.judge)}, 10, "node", stuck=_NAMES),
    Probe(group.look, {"process group": each(group.judge)}, 30, together=True, stuck=group.STUCK),
    Probe(binding.look, {"cores": binding.judge}, 5, together=True),
    Probe(gloo.look, {"interface": gloo.judge}, 10, together=True, stuck=_COLLECTIVE),
    Probe(nccl.look, {"transport": nccl.judge}, 15, together=True, stuck=_COLLECTIVE),
    Probe(allreduce.look, {"all-reduce": allreduce.judge}, 15, together=True, stuck=_COLLECTIVE),
    Probe(agreement.look_clock, {"clock skew": agreement.judge_clock}, 5, together=True, stuck=_COLLECTIVE),
    Probe(burn.look, {"compute": burn.judge, "clocks": each(clocks.judge)}, 15, together=True, stuck=_GPU),
    Probe(loader.look, {"loader": loader.judge}, 15, together=True, stuck=_DISK),
)
