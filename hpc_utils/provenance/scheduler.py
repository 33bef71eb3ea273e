"""The job that a process runs in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .ask import number

SLURM = {
    "id": "SLURM_JOB_ID",
    "array_job_id": "SLURM_ARRAY_JOB_ID",
    "array_task_id": "SLURM_ARRAY_TASK_ID",
    "name": "SLURM_JOB_NAME",
    "partition": "SLURM_JOB_PARTITION",
    "account": "SLURM_JOB_ACCOUNT",
    "nodelist": "SLURM_JOB_NODELIST",
}


def job(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Slurm's account of the job; `{"scheduler": None}` outside one."""
    environment = os.environ if environment is None else environment
    if not environment.get("SLURM_JOB_ID"):
        return {"scheduler": None}
    told = {key: environment.get(name) for key, name in SLURM.items()}
    nodes = number(environment.get("SLURM_JOB_NUM_NODES"))
    restarts = number(environment.get("SLURM_RESTART_COUNT")) or 0  # Slurm sets it from the first restart on
    return {"scheduler": "slurm", **told, "nodes": nodes, "restart_count": restarts}
