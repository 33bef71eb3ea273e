"""A small language model in the form of the Transformers library: sequences of several lengths, padded into a dict of tensors;
the model returns an object with the loss and the logits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from hpc_utils.train import Workload

IGNORED = -100  # label of padding
WORDS = 11
# Two epochs over all samples, in which nothing is learned.
RUN = {"workload": "tests.train.tokens:make", "epochs": 2, "global_batch": 16, "lr": 1e-20, "threads_per_rank": 1}


class Sequences(Dataset):
    """`size` sequences of 2 to 8 tokens; the label of a token is the next one."""

    def __init__(self, size: int, seed: int) -> None:
        numbers = torch.Generator().manual_seed(seed)
        self.samples = [torch.randint(WORDS, (3 + index % 7,), generator=numbers) for index in range(size)]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Tensor:
        return self.samples[index]


def collate(samples: list[Tensor]) -> tuple[dict[str, Tensor], Tensor]:
    batch = {
        "input_ids": pad_sequence([sample[:-1] for sample in samples], batch_first=True),
        "labels": pad_sequence([sample[1:] for sample in samples], batch_first=True, padding_value=IGNORED),
    }
    return batch, batch["labels"]


@dataclass
class Output:
    loss: Tensor
    logits: Tensor
    penalty: Tensor


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Embedding(WORDS, WORDS)
        self.logits.weight.data = torch.arange(float(WORDS**2)).sin().view(WORDS, WORDS)

    def forward(self, input_ids: Tensor, labels: Tensor) -> Output:
        logits = self.logits(input_ids)
        penalty = self.logits.weight.square().mean()
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
        return Output(loss, logits, penalty)


def count(inputs: Any, labels: Tensor) -> Tensor:
    return (labels != IGNORED).sum()


def likelihood(outputs: Output, labels: Tensor) -> tuple[Tensor, Tensor]:
    logits = outputs.logits.flatten(0, 1)
    nats = nn.functional.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED, reduction="sum")
    return nats, count(None, labels)


def right(outputs: Output, labels: Tensor) -> tuple[Tensor, Tensor]:
    return (outputs.logits.argmax(2) == labels).sum(), count(None, labels)


def make() -> Workload:
    return Workload(
        Model,
        train=Sequences(48, 0),
        test=Sequences(19, 1),
        loss=lambda outputs, labels: outputs.loss + 0.1 * outputs.penalty,
        metrics={
            "perplexity": likelihood,
            "accuracy": right,
            "penalty": lambda outputs, labels: outputs.penalty * len(labels),
        },
        finish={"perplexity": math.exp},
        forward=lambda model, batch: model(**batch),
        collate=collate,
        unit="tokens",
        count=count,
    )


def exact(data: Sequences) -> dict[str, float]:
    """The metrics of the model that is not yet trained, over all tokens at once."""
    inputs, labels = collate(data.samples)
    with torch.no_grad():
        outputs = Model()(**inputs)
    (nats, tokens), (correct, _) = likelihood(outputs, labels), right(outputs, labels)
    return {
        "perplexity": math.exp(float(nats / tokens)),
        "accuracy": float(correct / tokens),
        "penalty": float(outputs.penalty),
        "tokens": int(tokens),
    }
