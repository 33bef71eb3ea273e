"""How a model is spread over the ranks: what differs between none, ddp, zero1 and fsdp, and nothing else."""

from __future__ import annotations

import importlib

from torch import nn

from hpc_utils.config import RunConfig

from ..ranks import Ranks
from .strategy import Strategy

KINDS = {"none": "strategy.Strategy", "ddp": "ddp.Ddp", "zero1": "zero1.Zero1", "fsdp": "fsdp.Fsdp"}


def spread(model: nn.Module, config: RunConfig, ranks: Ranks) -> Strategy:
    """`model`, which is on its device, spread as `config` says.

    Raises:
        ConfigError: this backend or model does not support it.
    """
    module, _, kind = KINDS[config.parallel].partition(".")
    # Imported when it is needed: ZeroRedundancyOptimizer takes seconds.
    return getattr(importlib.import_module(f".{module}", __package__), kind)(model, config, ranks)


__all__ = ["Strategy", "spread"]
