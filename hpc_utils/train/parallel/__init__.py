"""Parallel strategies, behind one interface."""

from __future__ import annotations

import importlib

from torch import nn

from hpc_utils.config import RunConfig

from ..ranks import Ranks
from .strategy import Strategy

KINDS = {
    "none": "strategy.Strategy",
    "ddp": "ddp.Ddp",
    "zero1": "zero1.Zero1",
    "fsdp": "fsdp.Fsdp",
}


def spread(model: nn.Module, config: RunConfig, ranks: Ranks) -> Strategy:
    """Apply the strategy of `config` to `model`, which is on its device.

    Raises:
        ConfigError: the backend or model does not support the configuration.
    """
    module, _, kind = KINDS[config.parallel].partition(".")
    # Imported lazily: importing ZeroRedundancyOptimizer takes seconds.
    return getattr(importlib.import_module(f".{module}", __package__), kind)(model, config, ranks)
