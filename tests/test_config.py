from __future__ import annotations

import json
import math
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_utils.config import ConfigError, RunConfig, describe, parse_assignments

NAN = float("nan")

# Parameters, and the beginning of the message.
REFUSED = [
    ({"workload": "resnet19"}, "workload=resnet19.* resnet18, resnet50, cnn"),
    ({"epoch": 3, "sed": 1}, "unknown parameter 'epoch': did you mean epochs.*\nunknown parameter 'sed'"),
    ({"learning_rate": 1}, "unknown parameter 'learning_rate': did you mean lr?"),
    ({"zzz": 1}, "unknown parameter 'zzz': `hpc params` lists them"),
    ({"lr": -1, "epochs": 0}, "epochs=0.*\nlr=-1"),
    ({"precision": "fp8"}, "precision='fp8'.*'fp32', 'tf32', 'bf16', 'fp16' or 'amp'"),
    ({"workload_args": {"x": NAN}, "workload": "a:b"}, "workload_args"),
    ({"workload_args": {"depth": 3}}, "workload=resnet18"),
    ({"compile": "default", "warmup_steps": 0}, "compile=default with warmup_steps=0: .*warmup_steps=1"),
    ({"compile": "reduce-overhead", "warmup_steps": 2}, "compile=reduce-overhead with .*warmup_steps=3"),
    ({"cores_per_rank": 0.05}, r"cores_per_rank=0.05 with share_period=0.01: .*share_period=0\.02"),
]
# Values that an option does not take, and options that contradict each other: the refusal repeats what was given.
FORBIDDEN = [
    {"epochs": 2.5}, {"lr": NAN}, {"seed": 2**31}, {"cores_per_rank": 1}, {"monitor_seconds": -1}, {"profile_steps": 5},
    {"global_batch": 8, "batch_per_device": 4}, {"lr_warmup_epochs": 2.5, "epochs": 2},
    {"dataset": "cifar10", "workload": "a:b"}, {"loader": "device", "workload": "a:b"}, {"augment": False, "workload": "a:b"},
    {"label_smoothing": 0.1, "workload": "a:b"}, {"stem": "imagenet", "workload": "a:b"}, {"cutout": 3, "augment": False},
    {"loader_workers": 2}, {"comm_hook": "fp16", "parallel": "fsdp"}, {"bucket_mb": 50, "parallel": "fsdp"},
    {"comm_hook": "powersgd", "warmup_steps": 0}, {"comm_hook": "powersgd", "precision": "fp16"},
    {"accumulate": 4, "batch_per_device": 6}, {"compile": "default", "parallel": "fsdp"},
    {"compile": "default", "bucket_mb": 0.5}, {"cores_per_rank": 0.5, "threads_per_rank": 2},
    {"cores_per_rank": 0.5, "device": "cuda"}, {"profile": "ncu", "device": "cpu"},
    {"persistent_workers": False}, {"static_graph": True, "parallel": "none"}, {"static_graph": True, "accumulate": 2},
    {"fused_optimizer": True, "parallel": "fsdp"}, {"activation_checkpointing": True, "workload": "cnn"},
    {"compile": "default", "activation_checkpointing": True}, {"compile": "max-autotune", "deterministic": True},
]  # fmt: skip


def refusal(options: dict) -> str:
    return " with ".join(f"{name}={str(value).lower()}" for name, value in options.items())


@pytest.mark.parametrize(("parameters", "why"), [*REFUSED, *((options, refusal(options)) for options in FORBIDDEN)])
def test_bad_parameters_are_refused_with_the_reason(parameters: dict, why: str) -> None:
    with pytest.raises(ConfigError, match=f"^{why}"):
        RunConfig(**parameters)


def test_compatible_options_are_accepted() -> None:
    RunConfig(parallel="fsdp", fused_optimizer=True, optimizer="adamw")
    RunConfig(compile="reduce-overhead", warmup_steps=1, device="cpu")
    RunConfig(workload="a:b", loader_workers=2, prefetch_factor=3, persistent_workers=False)
    RunConfig(cores_per_rank=0.05, share_period=0.02)
    with pytest.raises(ValueError, match="frozen"):
        RunConfig(profile="ncu", profile_steps=5).epochs = 3


@given(batch=st.integers(1, 5000), world=st.integers(1, 300))
def test_a_batch_divides_or_the_nearest_ones_are_named(batch: int, world: int) -> None:
    config = RunConfig(global_batch=batch)
    if batch % world == 0:
        assert config.batches(world) == (batch, batch // world)
        return
    with pytest.raises(ConfigError, match=f"global_batch={batch} does not divide over {world} ranks") as caught:
        config.batches(world)
    batches = [int(b) for b in str(caught.value).rpartition("global_batch=")[2].split(" or ")]
    assert all(b > 0 and b % world == 0 and abs(b - batch) < world for b in batches)


@pytest.mark.parametrize(("scaling", "factor"), [("linear", 4), ("sqrt", 2), ("none", 1)])
def test_the_rate_follows_the_global_batch_and_never_the_world_size(scaling: str, factor: float) -> None:
    config = RunConfig(lr=0.1, lr_batch=64, lr_scaling=scaling, global_batch=256)
    rates = {config.scaled_lr(config.batches(world)[0]) for world in (1, 2, 4, 64)}
    assert [*rates] == [pytest.approx(0.1 * factor)]
    weak = RunConfig(lr=0.1, lr_batch=64, lr_scaling=scaling, batch_per_device=64)
    assert weak.scaled_lr(weak.batches(4)[0]) == pytest.approx(0.1 * factor)


def test_a_notebook_gives_its_parameters_and_nothing_else() -> None:
    def train() -> None: ...

    names = {"epochs": np.int64(5), "lr": np.float32(0.5), "workload": "cnn", "x": 3, "text": "epochs", "np": np, "train": train,
             "_epoch": 9, "__name__": "__main__", "steps_per_epoch": None, "epoch": lambda: 0, "datasets": types}  # fmt: skip
    assert RunConfig.from_notebook(names) == RunConfig(epochs=5, lr=0.5, workload="cnn")
    with pytest.raises(ConfigError, match="unknown parameter 'precison': did you mean"):
        RunConfig.from_notebook({"precison": 1})
    with pytest.raises(ConfigError, match="dataset=<object"):
        RunConfig.from_notebook({"dataset": object()})


def test_text_becomes_the_type_of_the_option() -> None:
    text = ["epochs=3", "lr=1e-2", "augment=false", "precision=bf16", "steps_per_epoch=none", "seed=4"]
    config = RunConfig(**parse_assignments(text))
    assert config == RunConfig(epochs=3, lr=0.01, augment=False, precision="bf16", seed=4)
    text = ["workload=gpt:make", "workload_args.depth=12", "workload_args.name=a=b", "workload_args.bias=true"]
    assert RunConfig(**parse_assignments(text)).workload_args == {"depth": 12, "name": "a=b", "bias": True}
    whole = parse_assignments(["workload=gpt:make", 'workload_args={"depth": 12}'])
    assert RunConfig(**whole).workload_args == {"depth": 12}
    with pytest.raises(ConfigError, match="epochs='none'"):
        RunConfig(**parse_assignments(["epochs=none"]))
    with pytest.raises(ConfigError, match="is not name=value"):
        parse_assignments(["epochs"])


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


def test_every_option_is_described() -> None:
    rows = {row["name"]: row for row in describe()}
    assert list(rows) == list(RunConfig.model_fields)
    assert all(row["type"] and row["meaning"] for row in rows.values())
    assert rows["precision"]["type"] == "fp32 | tf32 | bf16 | fp16 | amp"
    assert rows["steps_per_epoch"] | {"meaning": ""} == {
        "name": "steps_per_epoch", "group": "How much work", "type": "integer | none", "default": "None", "unit": "step", "meaning": ""
    }  # fmt: skip
    assert rows["collective_timeout"]["unit"] == "s"
