"""Optimizers and learning-rate schedules."""

from __future__ import annotations

import math

import torch
from torch import nn

from hpc_utils.config import RunConfig


def build(model: nn.Module, config: RunConfig, peak_lr: float) -> torch.optim.Optimizer:
    """Build SGD with Nesterov momentum, or AdamW, with weight decay on matrices and filters only.

    Without `fused_optimizer`, torch chooses: its foreach implementation on a GPU, a loop over parameters on a CPU.
    """
    fused = config.fused_optimizer or None
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=peak_lr, betas=(config.momentum, 0.999), fused=fused)
    nesterov = config.momentum > 0
    return torch.optim.SGD(groups, lr=peak_lr, momentum=config.momentum, nesterov=nesterov, fused=fused)


def lr_factor(step: int, steps: int, steps_per_epoch: int, config: RunConfig) -> float:
    """Return the fraction of the peak learning rate at `step` (from 0) of `steps`.

    Schedules: constant; cosine to 0 (Loshchilov & Hutter 2017); step: 0.1 after 50 % and 0.01 after 75 % of the run (He et
    al. 2016); onecycle: linear from 4 % over 30 % of the run, then cosine to 0 (Smith 2018). All but onecycle start with a
    linear warm-up over `lr_warmup_epochs` (Goyal et al. 2017).
    """
    if config.schedule == "onecycle":
        rise = 0.3 * steps
        if step < rise:
            return 0.04 + 0.96 * step / rise
        return _cosine((step - rise) / max(1.0, steps - rise))
    warmup = min(steps, round(config.lr_warmup_epochs * steps_per_epoch))
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    if config.schedule == "cosine":
        return _cosine(done)
    if config.schedule == "step":
        return 1.0 if step < 0.5 * steps else 0.1 if step < 0.75 * steps else 0.01
    return 1.0


def _cosine(done: float) -> float:
    return (1 + math.cos(math.pi * done)) / 2
