"""The CUDA kernels without a device: results in Numba's simulator, types by the real compiler; and with one, if there is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

pytest.importorskip("numba_cuda")
from numba import boolean, float32, int32, int64, uint8
from numba import cuda as numba_cuda

from companions.mpi import cuda
from companions.mpi.strategy import framework
from hpc_utils.config import ConfigError
from tests.support import soak

FLOATS, TABLE, BYTES, LONGS = float32[::1], int32[::1], uint8[::1], int64[::1]
MATRIX = FLOATS, TABLE, TABLE
SIGNATURES = {
    "product": (*MATRIX, *MATRIX, FLOATS, int64, int64),
    "convolve": (*MATRIX, *MATRIX, FLOATS, TABLE, BYTES, int64),
    "summed": (FLOATS, int64, FLOATS, int64, boolean),
    "unpool": (FLOATS, BYTES, TABLE, int64, FLOATS, int64),
    "relu_gradient": (FLOATS, FLOATS, int64),
    "cross_entropy": (FLOATS, LONGS, float32, FLOATS, float32[:, ::1], int64),
    "sgd": (FLOATS, FLOATS, FLOATS, float32, float32, float32, boolean),
}
TILED = "product", "convolve"


def test_training_in_the_simulator_is_that_of_the_cpu() -> None:
    subprocess.run(
        [sys.executable, "-m", "companions.mpi.tests.cuda_steps"],
        env=os.environ | {"NUMBA_ENABLE_CUDASIM": "1"},
        check=True,
        timeout=200,
    )


@pytest.mark.parametrize("error", [AttributeError("no row_stack\nsince 2.5"), ImportError("no module")])
def test_packages_that_do_not_fit_are_named_in_one_line(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "companions.mpi.cuda":
                raise error

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "companions.mpi.cuda")
    monkeypatch.delattr("companions.mpi.cuda")
    with pytest.raises(
        ConfigError, match=r"numba-cuda [\d.]+ with numpy [\d.]+ cannot be imported .*pip install"
    ) as found:
        framework(torch.device("cuda"))
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("capability", [(8, 0), soak((9, 0))])
def test_kernels_compile_to_ptx_in_single_precision(capability: tuple[int, int]) -> None:
    kernels = {name for name, value in vars(cuda).items() if isinstance(value, type(cuda.sgd))}
    assert kernels - {"thread", "read", "multiplied"} == SIGNATURES.keys()
    for name, signature in SIGNATURES.items():
        ptx, _ = numba_cuda.compile_ptx(getattr(cuda, name).py_func, signature, cc=capability)
        assert f".target sm_{capability[0]}{capability[1]}" in ptx and f"{name}" in ptx
        assert ".f64" not in ptx
        assert ("bar.sync" in ptx, ".shared" in ptx) == (name in TILED, name in TILED)
        assert ".local" not in ptx, "the sums of a thread are in registers"


@pytest.mark.gpu
def test_training_on_a_gpu_is_that_of_the_cpu_and_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for backend in (torch.backends.cudnn, torch.backends.cuda.matmul):
        monkeypatch.setattr(backend, "allow_tf32", False)
    import numpy as np

    from .cuda_steps import compare
    from .torch_twin import in_torchs_layout, twin

    compare((28, 28, 1), (32, 64, 128), batch=128, steps=3)
    network, rng = cuda.CNN(batch=64), np.random.default_rng(0)
    x, y = rng.standard_normal((64, 28, 28, 1)).astype(np.float32), rng.integers(0, 10, 64)
    torchs = twin(network).cuda()
    logits = torchs(torch.from_numpy(x).permute(0, 3, 1, 2).cuda())
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(y).cuda())
    loss.backward()
    np.testing.assert_allclose(network.forward(x), logits.detach().cpu(), rtol=1e-4, atol=1e-5)
    network.backward(network.loss(x, y), lambda part: None)
    assert network.outcome == (pytest.approx(loss.item(), abs=1e-5), (logits.argmax(1).cpu().numpy() == y).sum())
    for parameter, ours in zip(torchs.parameters(), in_torchs_layout(network, network.gradients), strict=True):
        torch.testing.assert_close(ours, parameter.grad.cpu(), rtol=1e-4, atol=1e-4)
