"""A model's blocks: the parts that it is a stack of, each computed as one."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

LISTS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def blocks(model: nn.Module) -> list[nn.Module]:
    """The blocks of `model`, in its order, none within another: a ResNet's residual blocks, a transformer's layers.

    They are the children of what only lists others (`Sequential`, `ModuleList`, `ModuleDict`), and modules that have
    children themselves; one that holds more than half of the model's weights is a stack, and opened. A single layer
    is a block where a `Sequential` calls it: others may be read without being called. Blocks have weights.
    """
    return [*_within(model, _weights(model) / 2)]


def _within(module: nn.Module, much: float) -> Iterator[nn.Module]:
    for child in module.children():
        size, inner = _weights(child), any(True for _ in child.children())
        if not size:
            continue
        if isinstance(child, LISTS) or (inner and size > much):
            yield from _within(child, much)
        elif inner or isinstance(module, nn.Sequential):
            yield child


def _weights(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
