from __future__ import annotations

import json
import math
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_utils.config import ConfigError, RunConfig, describe, parse_assignments

INF, NAN = float("inf"), float("nan")

REFUSED = {
    "workload": (
        {"workload": "resnet19"},
        "unknown workload 'resnet19': did you mean resnet18.*known are resnet18, resnet50, cnn",
    ),
    "workload, nothing near": ({"workload": "gpt"}, "unknown workload 'gpt': known are"),
    "unknown": ({"epoch": 3}, "unknown parameter 'epoch': did you mean epochs"),
    "unknown, two near": ({"batch_size": 64}, "unknown parameter 'batch_size': did you mean .*batch"),
    "unknown, nothing near": ({"zzz": 1}, "unknown parameter 'zzz': `hpc params` lists them all"),
    "two unknown": ({"epoch": 3, "sed": 1}, "(?s)'epoch'.*\n.*'sed'"),
    "wrong type": ({"epochs": "three"}, "epochs='three': input should be a valid integer"),
    "fraction": ({"epochs": 2.5}, "epochs=2.5: input should be a valid integer"),
    "nothing": ({"lr": None}, "lr=None: input should be a valid number"),
    "object": ({"dataset": types}, "dataset=<module.*: input should be a valid string"),
    "choice": ({"precision": "fp8"}, "precision='fp8': input should be 'fp32', 'tf32', 'bf16' or 'fp16'"),
    "both batches": ({"global_batch": 8, "batch_per_device": 4}, r"global_batch \(strong.*or batch_per_device.*not both"),
    "NaN": ({"lr": NAN}, "lr=nan: input should be a finite number"),
    "infinite": ({"lr": INF}, "lr=inf: input should be a finite number"),
    "NaN deep down": ({"workload": "a:b", "workload_args": {"x": NAN}}, "workload_args.*finite"),
    "negative rate": ({"lr": -0.1}, "lr=-0.1: input should be greater than 0"),
    "zero rate": ({"lr": 0}, "lr=0: input should be greater than 0"),
    "zero batch": ({"global_batch": 0}, "global_batch=0: input should be greater than 0"),
    "negative batch": ({"batch_per_device": -1}, "batch_per_device=-1: input should be greater than 0"),
    "negative steps": ({"steps_per_epoch": -1}, "steps_per_epoch=-1"),
    "no epoch": ({"epochs": 0}, "epochs=0: input should be greater than 0"),
    "negative seed": ({"seed": -1}, "seed=-1: input should be greater than or equal to 0"),
    "huge seed": ({"seed": 2**31}, "seed=2147483648: input should be less than"),
    "repeat 0": ({"repeat": 0}, "repeat=0"),
    "momentum 1": ({"momentum": 1}, "momentum=1: input should be less than 1"),
    "never sampled": ({"phase_every": 0}, "phase_every=0"),
    "no thread": ({"threads_per_rank": 0}, "threads_per_rank=0"),
    "args of nobody": ({"workload_args": {"depth": 3}}, r"workload_args go to your own module:function, not to 'resnet18'"),
    "args in a list": ({"workload": "a:b", "workload_args": {"x": [1]}}, r"workload_args=\[1\]"),
    "long warm-up": ({"epochs": 2, "lr_warmup_epochs": 2.5}, "lr_warmup_epochs=2.5 is longer than epochs=2"),
    "a whole core as a share": ({"cores_per_rank": 1}, "cores_per_rank=1: input should be less than 1"),
    "share and threads": ({"cores_per_rank": 0.5, "threads_per_rank": 2}, "give one"),
    "share of a GPU": ({"cores_per_rank": 0.5, "device": "cuda"}, "device='cuda'"),
    "share too small": ({"cores_per_rank": 0.05}, r"1 ms at least; give share_period=0\.02 or more"),
    "period of no share": ({"share_period": 0.02}, "share_period=0.02 without cores_per_rank"),
    "two faults": ({"lr": -1, "epochs": 0}, "(?s)epochs=0.*\n.*lr=-1|lr=-1.*\n.*epochs=0"),
}  # fmt: skip


@pytest.mark.parametrize(("parameters", "why"), REFUSED.values(), ids=REFUSED)
def test_bad_parameters_are_refused_with_the_reason(parameters: dict, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        RunConfig(**parameters)


def test_what_was_asked_for_stays() -> None:
    config = RunConfig(epochs=2)
    with pytest.raises(ValueError, match="frozen"):
        config.epochs = 3


def test_configurations_share_no_default() -> None:
    RunConfig().workload_args["x"] = 1
    assert RunConfig().workload_args == {}


@given(batch=st.integers(1, 5000), world=st.integers(1, 300))
def test_a_batch_divides_or_the_nearest_that_do_are_named(batch: int, world: int) -> None:
    config = RunConfig(global_batch=batch)
    if batch % world == 0:
        assert config.batches(world) == (batch, batch // world)
        return
    with pytest.raises(ConfigError, match=f"global_batch={batch} does not divide over {world} ranks") as caught:
        config.batches(world)
    batches, ranks = str(caught.value).partition("global_batch=")[2].partition("global_batch=")[2].split(", or ")
    batches = [int(b) for b in batches.split(" or ")]
    nearest = min(abs(b - batch) for b in range(world, batch + world + 1, world))
    assert all(b > 0 and b % world == 0 and abs(b - batch) < world for b in batches)
    assert min(abs(b - batch) for b in batches) == nearest
    for n in ranks.removesuffix(" ranks").split(" or "):
        assert batch % int(n) == 0


def test_the_message_for_a_batch_that_does_not_divide() -> None:
    with pytest.raises(ConfigError, match=r"^global_batch=128 does not divide over 3 ranks: nearest possible are "
                                          r"global_batch=126 or 129, or 2 or 4 ranks$"):  # fmt: skip
        RunConfig().batches(3)


@given(batch=st.integers(1, 1000), world=st.integers(1, 1000))
def test_a_batch_per_device_always_fits(batch: int, world: int) -> None:
    assert RunConfig(batch_per_device=batch).batches(world) == (batch * world, batch)


@pytest.mark.parametrize(("scaling", "factor"), [("linear", 4), ("sqrt", 2), ("none", 1)])
def test_the_rate_follows_the_global_batch_and_never_the_world_size(scaling: str, factor: float) -> None:
    config = RunConfig(lr=0.1, lr_batch=64, lr_scaling=scaling, global_batch=256)
    rates = {config.scaled_lr(config.batches(world)[0]) for world in (1, 2, 4, 64)}
    assert [*rates] == [pytest.approx(0.1 * factor)]
    weak = RunConfig(lr=0.1, lr_batch=64, lr_scaling=scaling, batch_per_device=64)
    assert weak.scaled_lr(weak.batches(4)[0]) == pytest.approx(0.1 * factor)


class TestFromNotebook:
    def test_takes_the_parameters_and_leaves_the_rest(self) -> None:
        def train() -> None: ...

        names = {"epochs": 5, "lr": 0.2, "workload": "cnn", "x": 3, "text": "epochs", "np": np, "train": train,
                 "_epoch": 9, "__name__": "__main__", "steps_per_epoch": None}  # fmt: skip
        assert RunConfig.from_notebook(names) == RunConfig(epochs=5, lr=0.2, workload="cnn")

    @pytest.mark.parametrize("name", ["epoch", "precison", "global_batchs", "workloads"])
    def test_a_misspelt_name_is_refused(self, name: str) -> None:
        with pytest.raises(ConfigError, match=f"unknown parameter '{name}': did you mean"):
            RunConfig.from_notebook({name: 1})

    def test_functions_and_modules_may_be_called_nearly_like_a_parameter(self) -> None:
        assert RunConfig.from_notebook({"epoch": lambda: 0, "datasets": types}) == RunConfig()

    def test_a_parameter_of_another_type_is_never_passed_over(self) -> None:
        assert RunConfig.from_notebook({"epochs": np.int64(7), "lr": np.float32(0.5)}).epochs == 7
        with pytest.raises(ConfigError, match="dataset=<object"):
            RunConfig.from_notebook({"dataset": object()})


class TestAssignments:
    def test_text_becomes_the_knobs_type(self) -> None:
        text = ["epochs=3", "lr=1e-2", "augment=false", "precision=bf16", "steps_per_epoch=none", " seed =4"]
        config = RunConfig(**parse_assignments(text))
        expected = RunConfig(epochs=3, lr=0.01, augment=False, precision="bf16", seed=4)
        assert config == expected

    def test_arguments_of_ones_own_workload(self) -> None:
        text = ["workload=gpt:make", "workload_args.depth=12", "workload_args.name=a=b", "workload_args.bias=true"]
        assert RunConfig(**parse_assignments(text)).workload_args == {"depth": 12, "name": "a=b", "bias": True}
        whole = parse_assignments(["workload=gpt:make", 'workload_args={"depth": 12}'])
        assert RunConfig(**whole).workload_args == {"depth": 12}

    @pytest.mark.parametrize("text", ["epochs", "=3", ""])
    def test_what_is_no_assignment_is_refused(self, text: str) -> None:
        with pytest.raises(ConfigError, match=r"is not name=value"):
            parse_assignments([text])

    def test_none_for_a_knob_that_is_never_none_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="epochs='none'"):
            RunConfig(**parse_assignments(["epochs=none"]))


CONFIGS = st.fixed_dictionaries(
    {
        "epochs": st.integers(1, 100),
        "steps_per_epoch": st.none() | st.integers(1, 100),
        "global_batch": st.none() | st.integers(1, 4096),
        "lr": st.floats(1e-6, 10),
        "precision": st.sampled_from(["fp32", "tf32", "bf16", "fp16"]),
        "augment": st.booleans(),
        "lr_warmup_epochs": st.just(0),
    }
)


@given(CONFIGS)
def test_a_configuration_survives_json_and_the_command_line(parameters: dict) -> None:
    config = RunConfig(**parameters)
    assert RunConfig(**json.loads(json.dumps(config.model_dump()))) == config
    assert RunConfig(**parse_assignments(f"{name}={value}" for name, value in parameters.items())) == config
    assert math.isfinite(config.lr)


def test_every_knob_is_described() -> None:
    rows = {row["name"]: row for row in describe()}
    assert list(rows) == list(RunConfig.model_fields)
    assert all(row["type"] and row["meaning"] for row in rows.values())
    assert rows["precision"]["type"] == "fp32 | tf32 | bf16 | fp16"
    assert rows["steps_per_epoch"] | {"meaning": ""} == {
        "name": "steps_per_epoch", "type": "integer | none", "default": "None", "unit": "step", "meaning": ""
    }  # fmt: skip
    assert rows["collective_timeout"]["unit"] == "s"
