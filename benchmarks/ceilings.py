"""Estimates the minimum time of a step from its operations and bytes, at the measured rates of matrix products and copies.

    python -m benchmarks.ceilings threads=2

The rates are measured with the cores and threads of the compared variants: the best of several sizes of square matrix
products in each number format, and a copy larger than any cache (bytes read plus written). Prints one line of JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpc_utils.analyze.profiles import roofline
from hpc_utils.analyze.profiles.peaks import Peak

from . import measure
from .plain_loop import given, pin

if TYPE_CHECKING:
    import torch

    from .sides import Case


def measured(options: measure.Options) -> tuple[Peak, list[measure.Row]]:
    """The medians over all rounds as a device's peak, and one row per rate."""
    command = measure.python(
        "-m", "benchmarks.ceilings", f"threads={options.threads}", f"milliseconds={20 if options.quick else 300}"
    )
    sides = {"rates": lambda: json.loads(measure.last_line(command))}
    rounds = measure.alternate("ceilings", sides, options)["rates"]
    formats = [name for name in rounds[0] if name != "copy"]
    products = {f"matrix products in {name}": [one[name] / 1e9 for one in rounds] for name in formats}
    rows = measure.summarise("ceilings", "rate", "GFLOP/s", products)
    rows |= measure.summarise("ceilings", "rate", "GB/s", {"copy": [one["copy"] / 1e9 for one in rounds]})
    flops = {name: statistics.median([one[name] for one in rounds]) for name in formats}
    copy = statistics.median([one["copy"] for one in rounds])
    return Peak("this machine", "", flops, copy, "measured"), list(rows.values())


@dataclass(frozen=True)
class Work:
    """Operations of a step in matrix products and convolutions, and bytes read and written without caches."""

    flops: float
    moved: float

    def floor(self, ceiling: Peak, precision: str) -> float:
        """Minimum time in seconds: the longer of computing and moving data."""
        return self.flops / roofline.attainable(ceiling, precision, self.flops / self.moved)

    def bound(self, ceiling: Peak, precision: str) -> str:
        """The limit: `compute` or `bytes`."""
        ridge = ceiling.flops[precision] / ceiling.bandwidth
        return "compute" if self.flops / self.moved >= ridge else "bytes"

    def attained(self, seconds: float, ceiling: Peak, precision: str) -> str:
        """A note: the fractions of the matrix-product rate and of the floor that a step of `seconds` attains."""
        achieved = self.flops / seconds / ceiling.flops[precision]
        floor = self.floor(ceiling, precision)
        return f"{achieved:.0%} of {precision} matmul, {floor / seconds:.0%} of its floor"


def work(case: Case, precision: str) -> Work:
    """A training step of `case`, computed operation by operation as PyTorch does without `compile`.

    Bytes: each tensor kept for the backward pass is written and read once; each parameter is read forward, backward and in
    the update and written there, its gradient written and read, its momentum read and written. What caches hold from
    one to the other, and what `compile` recomputes, need not move: such a step may be below the floor.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from hpc_utils.config import RunConfig
    from hpc_utils.train import operations
    from hpc_utils.train.precision import autocast
    from hpc_utils.train.resolve import resolve

    cpu = torch.device("cpu")
    workload = resolve(RunConfig(workload=case.workload, dataset=case.dataset))
    inputs, targets = workload.train.batch(torch.arange(case.batch), 0, cpu)
    flops = operations.per_sample(workload, workload.model(), (inputs, targets)) * case.batch
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage()  # views share it
        return tensor

    with FakeTensorMode(allow_non_fake_inputs=True) as fake:  # nothing is computed
        model = workload.model()
        own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), autocast(precision, cpu):
            workload.loss(model(fake.from_tensor(inputs)), fake.from_tensor(targets))
    activations = sum(storage.nbytes() for key, storage in kept.items() if key not in own)
    return Work(flops, 2 * activations + 8 * sum(parameter.nbytes for parameter in model.parameters()))


def main(threads: int, milliseconds: int = 300) -> dict[str, float]:
    """{number format: FLOP/s, "copy": byte/s}, each rate measured for at least that long."""
    pin(threads)
    import torch
    from torch.utils.benchmark import Timer

    from hpc_utils import provenance
    from hpc_utils.train import precision

    torch.set_num_threads(threads)
    gpu = torch.cuda.is_available()
    device = torch.device("cuda" if gpu else "cpu")

    def seconds(statement: str, **names: torch.Tensor) -> float:
        timer = Timer(statement, globals={"torch": torch, **names}, num_threads=threads)
        return timer.blocked_autorange(min_run_time=milliseconds / 1e3).median

    def product(dtype: torch.dtype, size: int) -> float:
        a, b, c = (torch.ones(size, size, device=device, dtype=dtype) for _ in "abc")
        return 2 * size**3 / seconds("torch.mm(a, b, out=c)", a=a, b=b, c=c)

    rates = {}
    for name in ("fp32", *(["tf32"] if gpu else []), "bf16"):
        if name == "bf16" and not gpu and provenance.emulates_bf16():
            continue
        dtype = torch.bfloat16 if name == "bf16" else torch.float32
        with precision.matmul_precision(name):
            rates[name] = max(product(dtype, size) for size in ((4096, 8192) if gpu else (512, 1024, 2048)))
    source = torch.ones(2**28 if gpu else 2**25, device=device)  # 1 GiB, 128 MiB
    moved = 2 * source.nbytes
    rates["copy"] = moved / seconds("target.copy_(source)", source=source, target=torch.empty_like(source))
    return rates


if __name__ == "__main__":
    print(json.dumps(main(**given(sys.argv[1:]))))
