"""The CUDA kernels without a device: results in Numba's simulator, types by the real compiler; and with one, if there is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from numba import boolean, float32, uint8
from numba import cuda as numba_cuda

from hpc_utils.mpi import cuda

F1, F2, F3, F4, BYTES = float32[::1], float32[:, ::1], float32[:, :, ::1], float32[:, :, :, ::1], uint8[:, :, :, ::1]
SIGNATURES = {
    "product": (F2, F2, boolean, boolean, F3),
    "summed": (F3, F2),
    "im2col": (F4, F2),
    "col2im": (F2, F4),
    "pool": (F4, F1, F4, BYTES),
    "unpool": (F4, BYTES, F4),
    "add_bias": (F2, F1, boolean),
    "relu_gradient": (F2, F2),
    "sgd": (F1, F1, F1, float32, float32, float32, boolean),
}


def test_training_in_the_simulator_is_that_of_the_cpu() -> None:
    subprocess.run(
        [sys.executable, "-m", "tests.mpi.cuda_steps"],
        env=os.environ | {"NUMBA_ENABLE_CUDASIM": "1"},
        check=True,
        timeout=200,
    )


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
def test_kernels_compile_to_ptx_in_single_precision(capability: tuple[int, int]) -> None:
    kernels = {name for name, value in vars(cuda).items() if isinstance(value, type(cuda.sgd))} - {"element"}
    assert kernels == SIGNATURES.keys()
    for name, signature in SIGNATURES.items():
        ptx, _ = numba_cuda.compile_ptx(getattr(cuda, name).py_func, signature, cc=capability)
        assert f".target sm_{capability[0]}{capability[1]}" in ptx and f"{name}" in ptx
        assert ".f64" not in ptx
        assert ("bar.sync" in ptx, ".shared" in ptx) == (name == "product", name == "product")


@pytest.mark.gpu
def test_training_on_a_gpu_is_that_of_the_cpu_and_of_torch() -> None:
    import numpy as np
    import torch

    from .cuda_steps import compare
    from .torch_twin import twin

    compare((28, 28, 1), (32, 64, 128), batch=128, steps=3)
    model = cuda.CNN(batch=64)
    x = np.random.default_rng(0).standard_normal((64, 28, 28, 1)).astype(np.float32)
    expected = twin(model).cuda()(torch.from_numpy(x).permute(0, 3, 1, 2).cuda())
    np.testing.assert_allclose(model.forward(x), expected.detach().cpu(), rtol=1e-3, atol=1e-4)
