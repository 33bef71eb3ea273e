"""The random number generators of torch, Python and NumPy."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def seed(value: int) -> None:
    """Seed all generators."""
    torch.manual_seed(value)
    random.seed(value)
    np.random.seed(value % 2**32)


def take(device: torch.device) -> dict[str, Any]:
    """Return the state of all generators, that of `device` included, as tensors and plain values."""
    name, keys, *position = np.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "device": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        "python": random.getstate(),
        "numpy": [name, torch.from_numpy(keys.astype(np.int64)), *position],
    }


def host_state() -> tuple[object, ...]:
    """The state of the host's generators, to compare."""
    _, keys, *position = np.random.get_state()
    return bytes(torch.get_rng_state().numpy()), random.getstate(), bytes(keys), *position


def put(state: dict[str, Any], device: torch.device) -> None:
    """Restore the generators to `state`."""
    torch.set_rng_state(state["torch"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["device"], device)
    random.setstate(state["python"])
    name, keys, *position = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *position))
