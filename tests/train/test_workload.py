"""Ours and a user's own workload."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from hpc_utils import paths
from hpc_utils.config import RunConfig
from hpc_utils.datasets import Images
from hpc_utils.records.folder import read_json
from hpc_utils.train import WorkloadError, train, vision
from hpc_utils.train.resolve import resolve
from hpc_utils.train.workload import means

from . import tokens
from .conftest import OUTSIDE
from .support import after_steps, fit, resumed, same

OWN = {"workload": "outside:make", "epochs": 2, "global_batch": 32, "threads_per_rank": 1}

WRONG = """
    import dataclasses

    instance = make()

    def wrong(config):
        return {}

    class Whole(Points):
        def batch(self, indices, epoch, device):
            return torch.zeros(len(indices), 4), indices

    def whole():
        return Workload(model=lambda: nn.Linear(4, 96), train=Whole(256, 0), test=Whole(7, 1), loss=None)

    def untested():
        return dataclasses.replace(make(), test=None)

    def built():
        return dataclasses.replace(make(), model=Model(3))

    def counted():
        return dataclasses.replace(make(), metrics={"accuracy": lambda outputs, targets: 2 * len(targets)})

    def averaged():
        return dataclasses.replace(make(), metrics={"size": lambda outputs, targets: outputs.abs().mean()})

    def halved():
        mean = lambda outputs, targets: (outputs.abs().mean(), len(targets))
        return dataclasses.replace(make(), metrics={"size": mean})

    class Outputs:
        def __init__(self, values):
            self.values = values

    def wrapped(metric=lambda outputs, targets: outputs.values.abs().mean()):
        loss, call = make().loss, make().forward
        forward = lambda model, inputs: Outputs(call(model, inputs))
        return dataclasses.replace(
            make(), forward=forward, loss=lambda outputs, targets: loss(outputs.values, targets), metrics={"size": metric}
        )

    def exponential():
        return wrapped(lambda outputs, targets: outputs.values.mul(9).abs().mean().exp() * len(targets))

    def miscounted():
        return dataclasses.replace(make(), unit="points", count=lambda inputs, targets: targets.float().mean() + 1)

    def padded():
        texts = [torch.ones(2 + number % 5) for number in range(64)]
        collate = lambda samples: (torch.nn.utils.rnn.pad_sequence(samples, True),) * 2
        forward = lambda model, inputs: model(inputs.unsqueeze(2)).squeeze(2)
        loss = lambda outputs, targets: (outputs - targets).square().mean()
        count = lambda inputs, targets: targets.numel()
        return Workload(
            lambda: nn.Linear(1, 1), texts, texts, loss, forward=forward, collate=collate, unit="tokens", count=count
        )

    def stranger():
        other = Model(3)
        return dataclasses.replace(make(), optimizer=lambda model, config, lr: torch.optim.SGD(other.parameters(), lr))

    def partial():
        first = lambda model, config, lr: torch.optim.SGD([next(model.parameters())], lr)
        return dataclasses.replace(make(), optimizer=first)

    def ending():
        return dataclasses.replace(make(), schedule=lambda step, *rest: 1.0 if step < 2 else float("nan"))

    def summed():
        return wrapped(lambda outputs, targets: outputs.values.abs().sum())

    def threefold():
        return dataclasses.replace(make(), metrics={"size": lambda outputs, targets: [outputs.sum()] * 3})

    class Stream(torch.utils.data.IterableDataset):
        def __len__(self):
            return 7

        def __iter__(self):
            return iter(Points(7, 1))

    def streamed():
        return dataclasses.replace(make(), test=Stream())

    def loaded():
        return dataclasses.replace(make(), train=torch.utils.data.DataLoader(Points(7, 1)))

    def unpaired():
        return dataclasses.replace(make(), collate=lambda samples: {"x": torch.zeros(3), "y": torch.zeros(3)})

    def triple():
        return dataclasses.replace(make(), collate=lambda samples: [torch.zeros(3)] * 3)

    @dataclasses.dataclass
    class Sample:
        x: torch.Tensor

    def ragged():
        return dataclasses.replace(make(), train=[Sample(torch.zeros(2))] * 96)

    def untargeted():
        collate = lambda samples: ({"x": torch.zeros(len(samples), 4)}, None)
        return dataclasses.replace(make(), collate=collate, loss=lambda outputs, targets: outputs.sum(), metrics={})

    def fixed():
        return dataclasses.replace(make(), optimizer=lambda model, config, lr: torch.optim.SGD(model.parameters(), lr))

    def several():
        return dataclasses.replace(make(), optimizer=lambda model, config, lr: [model.parameters()])

    def scheduled():
        return dataclasses.replace(make(), schedule=lambda step, steps, per_epoch, config: 1.0)

    def finished():
        return dataclasses.replace(make(), finish={"left": abs})

    def uncounted():
        return dataclasses.replace(make(), unit="points")

    def empty():
        return make(test_size=0)

    def named():
        return dataclasses.replace(make(), metrics={"loss": lambda outputs, targets: outputs.sum()})

    class Headed(Model):
        def __init__(self):
            super().__init__(3)
            self.head = nn.Linear(3, 3)

    def unused():
        return dataclasses.replace(make(), model=Headed)
"""
FAULTS = {
    "unfinished": "import os\ndef make(:",
    "unpackaged": "import os\nimport no_such_package",
    "raising": "import json\njson.loads('{')\n",
    "leaving": "import os\nraise SystemExit(3)",
}

REFUSED = [
    ("nowhere:make", "no module 'nowhere' in .*elsewhere or PYTHONPATH"),
    ("outsid:make", "did you mean outside"),
    ("outside:mak", "outside.py has no 'mak': did you mean make"),
    ("outside:instance", "is not a function"),
    ("outside:wrong", "returned dict"),
    ("../a.py:make", "invalid format"),
    ("unfinished:make", r"unfinished.py, line 2"),
    ("unpackaged:make", r"/unpackaged.py:2: ModuleNotFoundError: .*no_such_package"),
    ("raising:make", r"/raising.py:2: JSONDecodeError"),
    ("leaving:make", r"/leaving.py:2: SystemExit"),
    ("outside:whole", "make whole batches themselves"),
    ("outside:untested", "test is None"),
    ("outside:built", "model is a module"),
    ("outside:empty", "test is empty"),
    ("outside:named", "metrics: loss"),
    ("outside:counted", "test accuracy is 2"),
    ("outside:averaged", "`size` is no sum"),
    ("outside:halved", "`size` is no sum"),
    ("outside:wrapped", "`size` is no sum"),
    ("outside:exponential", "`size` is no sum"),
    ("outside:miscounted", "`count` is no sum"),
    ("outside:padded", "`count` is no sum"),
    ("outside:stranger", "none of the model's"),
    ("outside:partial", "in no group"),
    ("outside:ending", "schedule gives nan at step 2 "),
    ("outside:streamed", "test is a Stream, which only iterates.*map-style"),
    ("outside:loaded", "train is a DataLoader"),
    ("outside:unpaired", r"a batch is a dict; expected \(inputs, targets\)"),
    ("outside:triple", "a batch is a list of 3"),
    ("outside:threefold", "the metric `size` gives 3 values"),
    ("outside:ragged", "Sample.*collate"),
    ("outside:untargeted", "the targets of a batch are None"),
    ("outside:several", "optimizer returned <generator"),
    ("outside:scheduled", "gamma, schedule: .* own schedule"),
    ("outside:fixed", "weight_decay: .* own optimizer"),
    ("outside:finished", "finish: left"),
    ("outside:uncounted", "unit and count"),
    ("outside:unused", "depend on head.weight, head.bias,"),
    ("outside:make", "does not take these workload_args.*'depht'"),
]


@pytest.mark.parametrize(("name", "why"), REFUSED)
def test_what_is_no_workload_is_refused_in_one_line(module: Callable, results: Path, name: str, why: str) -> None:
    """A fault of the user's file with its line, not with that of the library that raised; mostly before a run is begun."""
    module("outside", OUTSIDE + WRONG)
    if text := FAULTS.get(name.partition(":")[0]):
        module(name.partition(":")[0], text)
    arguments = {"depht": 3} if name == "outside:make" else {}
    more = {"loader_workers": 1} if name == "outside:whole" else {"epochs": 1, "global_batch": 32}
    more |= {"schedule": "step", "gamma": 0.5} if name == "outside:scheduled" else {}
    more |= {"weight_decay": 0.1} if name == "outside:fixed" else {}
    with pytest.raises(WorkloadError, match=why) as caught:
        train(RunConfig(workload=name, workload_args=arguments, **more))
    assert "\n" not in str(caught.value)
    is_made = name.startswith("outside:") and name not in ("outside:mak", "outside:instance", "outside:make")
    assert (results / "runs").exists() == is_made


def test_a_sum_of_outputs_that_cannot_be_divided_is_recorded(module: Callable) -> None:
    module("outside", OUTSIDE + WRONG)
    epochs = train(RunConfig(workload="outside:summed", epochs=1, global_batch=32)).tables()["epochs"]
    assert (epochs.test_size > 0).all()


def test_ones_own_workload_is_found_in_the_working_folder(module: Callable, monkeypatch, tmp_path: Path) -> None:
    module("outside", OUTSIDE)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not path.startswith(str(tmp_path))])
    result = train(RunConfig(**OWN))
    assert result.tables()["epochs"].samples.tolist() == [96, 96]
    assert result.run_id.startswith("outside.make-ddp1-")


def test_dict_inputs_a_forward_of_ones_own_metrics_and_arguments(module: Callable) -> None:
    module("outside", OUTSIDE)
    arguments = {"width": 5, "test_size": 9}
    (result, weights), (_, others) = (fit(**OWN, loader_workers=n, workload_args=arguments) for n in (0, 1))
    assert weights["layers.0.weight"].shape == (5, 4)
    assert same(weights, others), "workers change nothing but who loads"
    assert read_json(result.path / "run.json")["config"]["workload_args"] == arguments
    epochs = result.tables()["epochs"]
    assert ((epochs.test_right * 9).round(6) % 1 == 0).all() and epochs.test_right.between(0, 1).all()
    assert ((epochs.train_right * 96).round(6) % 1 == 0).all()
    assert train(RunConfig(**OWN, workload_args={"width": 4})).path != result.path


def test_the_source_of_ones_own_workload_is_part_of_the_digest(module: Callable) -> None:
    path = module("outside", OUTSIDE)
    first, again = (fit(**OWN)[0].tables()["run"]["digest"] for _ in range(2))
    path.write_text(path.read_text() + "another = 1\n")
    assert first == again != fit(**OWN)[0].tables()["run"]["digest"]


def test_a_collate_function_makes_the_batches(module: Callable) -> None:
    module("outside", """
        import torch
        from torch import nn
        from hpc_utils.train import Workload

        def collate(samples):
            return torch.tensor(samples).float()[:, None] * 10, torch.tensor(samples)

        def make():
            return Workload(model=lambda: nn.Linear(1, 1), train=list(range(32)), test=list(range(3)),
                            loss=lambda o, t: o.mean() * 0, collate=collate, forward=check)

        def check(model, inputs):
            assert inputs.shape[1:] == (1,) and (inputs % 10 == 0).all()
            return model(inputs)
    """)  # fmt: skip
    fit(**OWN, warmup_steps=0, evaluate_every=2)


@pytest.mark.parametrize("options", [{}, {"accumulate": 4}, {"loader_workers": 1, "eval_batch": 4}])
def test_quotients_of_sums_are_those_over_all_tokens(results: Path, options: dict) -> None:
    """A model of the Transformers library's form, sequences of several lengths, and a second loss."""
    tables = train(RunConfig(**tokens.RUN, **options)).tables()
    for part, data in (("train", tokens.make().train), ("test", tokens.make().test)):
        for name, value in tokens.exact(data).items():
            if name != "tokens":
                assert tables["epochs"][f"{part}_{name}"].tolist() == pytest.approx([value] * 2, rel=1e-6)
    assert tables["epochs"].units.tolist() == [tokens.exact(tokens.make().train)["tokens"]] * 2
    assert (tables["run"]["unit"], tables["run"]["units"]) == ("tokens", tables["epochs"].units.sum())


TRANSFORMERS = """
    from dataclasses import dataclass
    from types import SimpleNamespace
    import torch
    from torch import nn

    GPT2Config = SimpleNamespace

    @dataclass
    class Output:
        loss: torch.Tensor
        logits: torch.Tensor

    class GPT2LMHeadModel(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.words, self.head = nn.Embedding(config.vocab_size, config.n_embd), nn.Linear(config.n_embd, config.vocab_size)

        def get_input_embeddings(self):
            return self.words

        def forward(self, *, input_ids, attention_mask, labels):
            logits = self.head(self.words(input_ids) * attention_mask[..., None])
            predicted = logits[:, :-1].flatten(0, 1)
            return Output(nn.functional.cross_entropy(predicted, labels[:, 1:].flatten(), ignore_index=-100), logits)
"""


def test_the_language_model_of_the_page(module: Callable) -> None:
    """With a stand-in for the library: its form is what matters."""
    page = (paths.root() / "docs/your-model.md").read_text()
    module("transformers", TRANSFORMERS)
    module("my_text", re.search(r"^```py\n(.*?)^```$", page, re.M | re.S)[1])
    tables = train(RunConfig(**OWN | {"workload": "my_text:gpt", "steps_per_epoch": 20, "clip_norm": 1.0})).tables()
    first, last = tables["epochs"].to_dict("records")
    assert last["lr"] == pytest.approx(0.1 * 32 / 256 * 0.1, rel=0.1), "a tenth of the peak"
    for row in (first, last):
        assert row["train_perplexity"] == pytest.approx(math.exp(row["train_loss"]), rel=0.05)
    assert 0 <= last["test_accuracy"] < 0.1 and tables["run"]["unit"] == "tokens"
    assert 20 * 32 * 15 < first["units"] < 20 * 32 * 31


def test_a_schedule_and_groups_of_ones_own(module: Callable) -> None:
    """Every group follows the schedule from its own peak, also after a restart."""
    module("own", OUTSIDE.replace("return Workload(", """return Workload(
            optimizer=lambda model, config, lr: torch.optim.AdamW(
                [{"params": [p], "lr": lr * 10**number} for number, p in enumerate(model.parameters())]),
            schedule=lambda step, steps, per_epoch, config: (step + 1) / steps / per_epoch,"""))  # fmt: skip
    parameters = OWN | {"workload": "own:make", "lr": 1e-3, "lr_scaling": "none"}
    seen: list[list[float]] = []
    actions = dict.fromkeys(range(1, 7), lambda trainer: seen.append([g["lr"] for g in trainer._groups()]))
    with after_steps(actions):
        straight = train(RunConfig(**parameters))
    peaks = [1e-3 * 10**number for number in range(4)]
    assert seen == [pytest.approx([peak * step / 6 / 3 for peak in peaks]) for step in range(1, 7)]
    assert straight.tables()["epochs"].lr.tolist() == pytest.approx([1e-3 * 3 / 18, 1e-3 * 6 / 18])
    again = resumed(parameters, 2)
    assert again.tables()["epochs"].lr.tolist() == straight.tables()["epochs"].lr.tolist()


@pytest.mark.parametrize(("channels", "flip"), [(1, False), (3, True)])
def test_only_natural_images_are_mirrored_and_only_those_trained_on(monkeypatch, channels: int, flip: bool) -> None:
    pixels = np.zeros((4, 16, 16, channels), np.uint8)
    data = Images("x", "x", "x", pixels, np.arange(4), ("a", "b"), (0.5,) * channels, (0.5,) * channels, "")
    monkeypatch.setattr(vision.datasets, "load", lambda name, split: data)
    made, plain = (resolve(RunConfig(workload="cnn", augment=on)) for on in (True, False))
    assert (made.train.flip, made.train.padding) == (flip, 2)
    for images in (made.test, plain.train):
        assert (images.flip, images.padding) == (False, 0)


@pytest.mark.parametrize(("name", "stem", "shape", "parameters"), [
    ("resnet18", "cifar", (64, 3, 3, 3), 11_173_962),
    ("resnet50", "cifar", (64, 3, 3, 3), 23_520_842),
    ("resnet18", "imagenet", (64, 3, 7, 7), 11_181_642),
])  # fmt: skip
def test_the_models_are_the_papers(name: str, stem: str, shape: tuple, parameters: int) -> None:
    """Parameter counts of ResNets with a 3x3 stem and ten classes, as published for CIFAR-10."""
    model = vision.MODELS[name](3, 10, stem)
    assert tuple(model.conv1.weight.shape) == shape
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert isinstance(model.maxpool, torch.nn.Identity) == (stem == "cifar")
    grey = vision.MODELS[name](1, 10, stem)
    assert tuple(grey.conv1.weight.shape) == (64, 1, *shape[2:])


@pytest.mark.parametrize("size", [8, 28, 32, 64])
def test_the_small_cnn_takes_images_of_any_of_our_sizes(size: int) -> None:
    assert vision.small_cnn(1, 7, height=size)(torch.zeros(2, 1, size, size)).shape == (2, 7)


def test_a_perplexity_that_overflows_says_that_training_diverges() -> None:
    assert means({"perplexity": 4.0}, 2, {"perplexity": math.exp}) == {"perplexity": math.exp(2)}
    with pytest.raises(WorkloadError, match="perplexity overflows"):
        means({"perplexity": 4e3}, 2, {"perplexity": math.exp})
