"""What a job asks Slurm for on a cluster: the same of every job, and of each type of node.

What reaches Slurm or a shell from a cluster file is checked here, once.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from hpc_utils.config import RunConfig
from hpc_utils.toml_config import Strict

from .slurm_commands import seconds


def _only(pattern: str, allowed: str) -> AfterValidator:
    """Text of that pattern; `allowed` describes it."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value, re.ASCII):
            raise ValueError(f"{value!r} is not {allowed}")
        return value

    return AfterValidator(check)


def _one_line(value: str) -> str:
    if not value.isprintable():
        raise ValueError(f"{value!r} is not one line of text")
    return value


Text = Annotated[str, AfterValidator(_one_line)]
Word = Annotated[str, _only(r"[\w.,:@+=-]*", "made of letters, digits and _ . , : @ + = -")]
Label = Annotated[str, _only(r"[a-z0-9][a-z0-9-]{0,30}", "a name of small letters, digits and -, at most 31 long")]
Module = Annotated[str, _only(r"[\w.][\w./+-]*", "a module's name, such as cuda/12.6")]
Variable = Annotated[str, _only(r"[A-Za-z_]\w*", "a variable's name")]
Option = Annotated[str, _only(r"--[a-z][ -~]*", "one sbatch option in full, such as --hint=nomultithread")]
Memory = Annotated[str, _only(r"(\d+[KMGT]?)?", "the memory of a node, such as 480G, or 0 for all of it")]
Gres = Annotated[str, _only(r"([\w.-]+(:[\w.-]+)?)?", "a resource without a count, such as gpu or gpu:a100")]
Device = Annotated[str, _only(r"([a-z0-9][a-z0-9-]*)?", "a GPU's name in small letters, such as a100 or mi250x")]
Time = Annotated[str, _only(r"(\d+-)?\d{1,3}:\d\d:\d\d", "a time such as 01:30:00 or 2-00:00:00")]
Precision = RunConfig.model_fields["precision"].annotation

# Why a device that lacks a number format is not worth a run in it.
LACKS = {
    "tf32": "it is a format of NVIDIA's tensor cores, from Ampere on",
    "fp16": "it needs a GPU's units; a CPU emulates it, slower than fp32",
    "bf16": "the device has no units for it (NVIDIA's have from Ampere on)",
}

# sbatch's options that other keys stand for, or (None) that the jobs set themselves.
OWNED = {
    "--partition": "a node type's partition",
    "--account": "slurm.account",
    "--qos": "slurm.qos",
    "--time": "slurm.time",
    "--signal": "slurm.signal_seconds",
    "--gres": "a node type's gres and gpus",
    "--gpus-per-node": "a node type's gpus",
    "--cpus-per-task": "a node type's cores",
    "--mem": "a node type's memory",
    "--exclusive": "a node type's exclusive",
    "--licenses": "a node type's licenses",
} | dict.fromkeys(
    ("--nodes", "--ntasks", "--ntasks-per-node", "--array", "--dependency", "--output", "--chdir", "--export")
)


class Slurm(Strict):
    """What every job asks of Slurm there.

    `account`, `qos`: "" leaves it to the site's default. `time`: limit of one training job. `signal_seconds`: how long
    before that limit a job is told to write its checkpoint. `options`: more of sbatch's, each one argument.
    """

    account: Word = ""
    qos: Word = ""
    time: Time = "01:00:00"
    signal_seconds: int = Field(120, ge=10)
    options: list[Option] = Field([])

    @property
    def seconds(self) -> int:
        """The time limit in seconds."""
        return seconds(self.time)

    @model_validator(mode="after")
    def _consistent(self) -> Slurm:
        if self.signal_seconds >= self.seconds:
            raise ValueError(f"signal_seconds = {self.signal_seconds} is no less than time = {self.time}")
        for option in self.options:
            name = option.partition("=")[0]
            if name in OWNED:
                owner = f"what {OWNED[name]} stands for" if OWNED[name] else "set by the jobs themselves"
                raise ValueError(f"options: {name} is {owner}")
        return self


class NodeType(Strict):
    """Nodes that are alike.

    Attributes:
        gpus, gpu: devices of a node and their name; 0 and "" where the CPU's cores are the devices.
        gres: "" asks with --gpus-per-node=N, "gpu:a100" with --gres=gpu:a100:N.
        ranks: most ranks of a node; one a GPU, or one a core, where not given.
        cores: those a job may use; 0 where only Slurm knows (then `ranks` may be 0 too).
        memory: "" leaves it to the site's default. most_nodes: of one job; 0 is not known.
        precisions: what the device computes usefully; runs in others are not applicable.
        price, unit: what a node costs for an hour. licenses: taken by every job.
        variables: environment of every rank; a value may use $NAME of the cluster.
    """

    partition: Word = Field(min_length=1)
    gpus: int = Field(0, ge=0)
    gpu: Device = ""
    gres: Gres = ""
    ranks: int = Field(0, ge=0)
    cores: int = Field(0, ge=0)
    memory: Memory = ""
    exclusive: bool = False
    most_nodes: int = Field(0, ge=0)
    precisions: list[Precision] = Field(min_length=1)
    price: float = Field(1.0, ge=0, allow_inf_nan=False)
    unit: Text = "node-hours"
    licenses: Word = ""
    variables: dict[Variable, Text] = Field({})
    _name: str = PrivateAttr("")

    @model_validator(mode="before")
    @classmethod
    def _one_rank_a_device(cls, table: Any) -> Any:
        if isinstance(table, dict) and not table.get("ranks"):
            devices = table.get("gpus") or table.get("cores")
            return table | ({"ranks": devices} if isinstance(devices, int) else {})
        return table

    @model_validator(mode="after")
    def _consistent(self) -> NodeType:
        if self.gpus and not self.gpu:
            raise ValueError("gpu: name the device, such as a100, since gpus is not 0")
        if not self.gpus and (self.gpu or self.gres):
            raise ValueError(f"{'gpu' if self.gpu else 'gres'} is given, but gpus is 0")
        if self.gpus and self.ranks > self.gpus:
            raise ValueError(f"ranks = {self.ranks}, but a rank has a GPU of its own and a node has {self.gpus}")
        for name in self.variables:
            if name.startswith(("HPC_", "SLURM_")) or name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "PATH"):
                raise ValueError(f"variables.{name}: it is set by Slurm or by the jobs themselves")
        return self

    @property
    def name(self) -> str:
        """Its key in the file: [nodes.<name>]."""
        return self._name

    @property
    def device(self) -> str:
        """What `RunConfig.device` is on such a node."""
        return "cuda" if self.gpus else "cpu"

    @property
    def vendor(self) -> str:
        """amd, nvidia, or "" without GPUs."""
        return ("amd" if re.match(r"mi\d", self.gpu) else "nvidia") if self.gpus else ""

    def refusal(self, precision: str) -> str:
        """Why no run is made there in this precision; empty if it is."""
        return "" if precision in self.precisions else LACKS.get(precision, "the cluster file does not list it")

    def cost(self, nodes: int, ranks_per_node: int, hours: float) -> float:
        """What a job costs, in `unit`: shared nodes are paid by the share of their devices."""
        share = 1.0 if self.exclusive or not self.ranks else ranks_per_node / self.ranks
        return self.price * nodes * share * hours
