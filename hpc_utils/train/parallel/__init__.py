"""How a model is spread over the ranks: what differs between none, ddp, zero1 and fsdp, and nothing else."""

from __future__ import annotations

from torch import nn

from hpc_utils.config import RunConfig

from ..ranks import Ranks
from .strategy import Strategy


def spread(model: nn.Module, config: RunConfig, ranks: Ranks) -> Strategy:
    """`model`, which is on its device, spread as `config` says.

    Raises:
        ConfigError: this backend or model cannot do what is asked.
    """
    return _kind(config.parallel)(model, config, ranks)


def _kind(parallel: str) -> type[Strategy]:
    """Imported when it is needed: ZeroRedundancyOptimizer takes seconds."""
    if parallel == "ddp":
        from .ddp import Ddp

        return Ddp
    if parallel == "zero1":
        from .zero1 import Zero1

        return Zero1
    if parallel == "fsdp":
        from .fsdp import Fsdp

        return Fsdp
    return Strategy


__all__ = ["Strategy", "spread"]
