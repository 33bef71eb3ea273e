"""How a model is spread over the ranks: what differs between none, ddp, zero1 and fsdp, and nothing else."""

from __future__ import annotations

from torch import nn

from hpc_utils.config import RunConfig

from ..ranks import Ranks
from .ddp import Ddp
from .fsdp import Fsdp
from .strategy import Strategy
from .zero1 import Zero1

STRATEGIES: dict[str, type[Strategy]] = {"none": Strategy, "ddp": Ddp, "zero1": Zero1, "fsdp": Fsdp}


def spread(model: nn.Module, config: RunConfig, ranks: Ranks) -> Strategy:
    """`model`, which is on its device, spread as `config` says.

    Raises:
        ConfigError: this backend or model cannot do what is asked.
    """
    return STRATEGIES[config.parallel](model, config, ranks)


__all__ = ["STRATEGIES", "Strategy", "spread"]
