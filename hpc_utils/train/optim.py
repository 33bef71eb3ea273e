"""Optimizers and learning-rate schedules."""

from __future__ import annotations

import math

import torch
from torch import nn

from hpc_utils.config import RunConfig


def build(model: nn.Module, config: RunConfig, peak_lr: float) -> torch.optim.Optimizer:
    """Build SGD or AdamW, with weight decay on matrices and filters, or on all parameters.

    Without `fused_optimizer`, torch chooses: its foreach implementation on a GPU, a loop over parameters on a CPU.
    """
    fused = config.fused_optimizer or None
    trained = [p for p in model.parameters() if p.requires_grad]
    decayed = [p for p in trained if p.ndim > 1 or config.weight_decay_on == "all"]
    undecayed = [p for p in trained if p.ndim <= 1 and config.weight_decay_on != "all"]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": undecayed, "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=peak_lr, betas=(config.momentum, 0.999), fused=fused)
    nesterov = config.nesterov and config.momentum > 0
    return torch.optim.SGD(groups, lr=peak_lr, momentum=config.momentum, nesterov=nesterov, fused=fused)


def start_momentum(optimizers: list[torch.optim.Optimizer]) -> None:
    """Set the momentum of fused SGD to zero before its first step.

    Otherwise torch (2.13) leaves it uninitialised if the loss scaling skips that step, and uses it in the next one.
    """
    for optimizer in optimizers:
        for group in optimizer.param_groups if isinstance(optimizer, torch.optim.SGD) else ():
            for parameter in group["params"] if group["fused"] and group["momentum"] else ():
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def lr_factor(step: int, steps: int, steps_per_epoch: int, config: RunConfig) -> float:
    """Return the fraction of the peak learning rate at `step` (from 0) of `steps`.

    Schedules: constant; cosine to 0 (Loshchilov & Hutter 2017); multistep: times `gamma` after 50 % and 75 % of the run (He
    et al. 2016); step: times `gamma` every `step_size` epochs (torch's StepLR); onecycle: linear from 4 % over 30 % of the
    run, then cosine to 0 (Smith 2018). All but onecycle start with a linear warm-up over `lr_warmup_epochs` (Goyal et al.
    2017).
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
    if config.schedule == "multistep":
        return config.gamma ** sum(step >= share * steps for share in (0.5, 0.75))
    if config.schedule == "step":
        return config.gamma ** (step // steps_per_epoch // config.step_size)
    return 1.0


def _cosine(done: float) -> float:
    return (1 + math.cos(math.pi * done)) / 2
