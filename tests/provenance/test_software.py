from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata

from hpc_utils.provenance import environment, host, job, versions
from hpc_utils.provenance.software import _numerics


def test_the_torch_build_is_the_same_read_and_asked():
    script = """
import json, sys
from hpc_utils.provenance import versions
read = versions()
assert "torch" not in sys.modules
import torch
asked = versions()
print(json.dumps([read, asked, torch.version.cuda, torch.version.hip]))
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=120)
    read, asked, cuda, hip = json.loads(done.stdout)
    assert (read["cuda"], read["hip"]) == (asked["cuda"], asked["hip"]) == (cuda, hip)
    assert set(read) == set(asked) and read["torch"] == metadata.version("torch") and read["python"]


def test_numeric_libraries_are_read_from_the_build_text_of_torch():
    text = """PyTorch built with:
  - Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 20240605 for Intel(R) 64 architecture applications
  - Intel(R) MKL-DNN v3.12.0 (Git Hash 80afa71)
  - Build settings: BLAS_INFO=mkl, BUILD_TYPE=Release"""
    assert _numerics(text) == ("mkl 2024.2", "3.12.0")
    assert _numerics("Build settings: BLAS_INFO=open, BUILD_TYPE=Release") == ("open", None)
    assert _numerics("") == (None, None)


def test_container_and_modules_are_recorded(monkeypatch):
    monkeypatch.setenv("LOADEDMODULES", "gcc/13.2:cuda/12.4")
    monkeypatch.setenv("APPTAINER_CONTAINER", "/project/somebody/images/cuda.sif")
    found = host()
    assert (found["modules"], found["container"]) == ("gcc/13.2 cuda/12.4", "cuda.sif"), "no path of anybody's"
    monkeypatch.setenv("LOADEDMODULES", "")
    assert host()["modules"] is None


def test_variables_that_change_measurements_are_recorded_without_secrets():
    kept = {"CUDA_VISIBLE_DEVICES": "0,1", "GLOO_SOCKET_IFNAME": "eth0", "NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "4"}
    dropped = dict.fromkeys(("TORCH_HUB_TOKEN", "GLOO_PASSWORD", "AWS_SECRET_ACCESS_KEY"), "s3cret")
    dropped |= {"TORCH_HOME": "/home/somebody/.cache", "MY_OMP_NUM_THREADS": "1"}
    withheld = {"NCCL_COMM_ID": "192.0.2.7:4242", "GLOO_STORE": "https://me:s3cret@example.org/x"}
    withheld |= {"NCCL_SOCKET_ADDRESS": "[2001:db8::1]:29500"}
    assert environment(kept | dropped | withheld) == kept | dict.fromkeys(withheld, "(withheld)")


def test_the_version_of_slurm_is_read_in_jobs_only(tool, monkeypatch):
    tool("srun", "echo slurm-wlm 22.05.8")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert versions()["slurm"] is None
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert versions()["slurm"] == "22.05.8"


def test_an_array_task_that_was_requeued_and_no_job():
    assert not any(job({"SLURM_CLUSTER_NAME": "x"}).values())
    variables = {
        "SLURM_JOB_ID": "4713",
        "SLURM_ARRAY_JOB_ID": "4711",
        "SLURM_ARRAY_TASK_ID": "2",
        "SLURM_JOB_NAME": "strong",
        "SLURM_JOB_NODELIST": "gpu[01-02]",
        "SLURM_JOB_PARTITION": "gpu",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_RESTART_COUNT": "1",
        "SLURM_JWT": "a token",
    }
    expected = {"scheduler": "slurm", "id": "4713", "array_job_id": "4711", "array_task_id": "2", "name": "strong"}
    expected |= {"partition": "gpu", "account": None, "nodelist": "gpu[01-02]", "nodes": 2, "restart_count": 1}
    assert job(variables) == expected
