from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hpc_utils.provenance import collect, digest, hardware_id, measuring_digest


def test_a_clone(clone: Path, git: Callable[..., str]) -> None:
    record = collect(root=clone)
    assert json.loads(json.dumps(record)) == record
    assert record["commit"] == git(clone, "rev-parse", "HEAD")
    assert record["dirty"] is False
    assert record["digest"] == measuring_digest(root=clone)
    assert record["digest_rule"] == digest.RULE
    assert record["hardware_id"] == hardware_id()
    assert abs(datetime.now(UTC) - datetime.fromisoformat(record["collected_at"])) < timedelta(minutes=1)
    assert record["faults"] == []


def test_without_code_there_is_neither_digest_nor_commit(tmp_path: Path) -> None:
    record = collect(root=tmp_path)
    assert record["digest"] is record["commit"] is None
    assert record["faults"] and "no measuring code" in record["faults"][0]


def test_an_unreadable_workload_is_a_fault_not_a_false_digest(tree: Path, tmp_path: Path) -> None:
    record = collect([tmp_path / "gone.py"], root=tree)
    assert record["digest"] is None
    assert "gone.py" in record["faults"][0]


def test_a_copied_tree_without_any_tools_is_valid(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    record = collect(root=tree)
    assert record["commit"] is None and record["digest"] and record["hardware"]["gpus"] == []


def test_secrets_stay_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "TORCH_TOKEN", "SLURM_JWT", "NCCL_AUTH"):
        monkeypatch.setenv(name, "s3cret-value")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    record = collect()
    assert record["job"]["id"] == "7"
    assert "s3cret-value" not in json.dumps(record)


def test_it_loads_no_large_package() -> None:
    script = """
import sys
import hpc_utils.provenance as provenance
provenance.collect()
sys.exit(", ".join({"torch", "numpy", "pandas"} & set(sys.modules)) or 0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
