"""The loop that every tutorial teaches, as the yardstick for our trainer; nothing of `hpc_utils.train.loop`.

    python -m benchmarks.plain_loop workload=cnn dataset=digits batch=128 steps=100 warmup=5 threads=2 workers=0

A map-style data set of PIL images, torchvision's transforms sample by sample, a shuffling DataLoader, SGD with
Nesterov momentum, cross-entropy. Model and data are the same as ours; so are batch, number of steps, threads and
cores, and number format. It is spared what costs time in many such loops: `loss.item()` at each step,
workers started anew each epoch, counting of correct answers. Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import islice

from hpc_utils import datasets, provenance


def main(workload: str, dataset: str, batch: int, steps: int, warmup: int, threads: int, workers: int) -> dict:
    """Train `warmup` steps, then time `steps` more; {"images_per_second", "step_seconds"}."""
    pin(threads)
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, RandomSampler

    from hpc_utils.train.vision import MODELS

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.allow_tf32 = False  # torch's default would compute "fp32" convolutions in TF32
    torch.backends.cudnn.benchmark = True
    train = datasets.load(dataset, "train")
    samples = Samples(train)
    loader = DataLoader(
        samples,
        batch_size=batch,
        sampler=RandomSampler(samples, num_samples=batch * max(steps, warmup)),  # shuffles anew when data run out
        num_workers=workers,
        pin_memory=device.type == "cuda",
        persistent_workers=workers > 0,
    )
    model = MODELS[workload](train.images.shape[3], len(train.classes), "cifar").to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4)

    def train_epoch(steps: int) -> float:
        model.train()
        running = torch.zeros((), device=device)
        for inputs, targets in islice(loader, steps):
            inputs, targets = (t.to(device, non_blocking=True) for t in (inputs, targets))
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
            running += loss.detach()
        return running.item()

    train_epoch(warmup)
    begun = time.perf_counter()
    train_epoch(steps)  # ends with the loss on the host, so the device is done
    seconds = time.perf_counter() - begun
    return {"images_per_second": batch * steps / seconds, "step_seconds": seconds / steps}


class Samples:
    """The data set as torchvision's own are written: image by image, through PIL."""

    def __init__(self, split: datasets.Images) -> None:
        from hpc_utils.train.vision import _torchvision_models

        _torchvision_models()  # a CPU build of torch needs the operators' schemas before torchvision
        from torchvision import transforms

        height, width, channels = split.images.shape[1:]
        self.images, self.labels = split.images, split.labels.tolist()
        self.grey = channels == 1
        flip = [] if self.grey else [transforms.RandomHorizontalFlip()]
        self.transform = transforms.Compose(
            [
                transforms.RandomCrop((height, width), padding=max(1, height // 8)),
                *flip,
                transforms.ToTensor(),
                transforms.Normalize(split.mean, split.std),
            ]
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int):
        from PIL import Image

        pixels = self.images[index]
        return self.transform(Image.fromarray(pixels[:, :, 0] if self.grey else pixels)), self.labels[index]


def pin(threads: int) -> None:
    """Keep this process, and the workers that it starts, on the cores that ours would be pinned to."""
    if hasattr(os, "sched_setaffinity"):
        cores = provenance.core_groups()[:threads]
        os.sched_setaffinity(0, [cpu for core in cores for cpu in core])


if __name__ == "__main__":
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    print(json.dumps(main(**{name: int(value) if value.isdigit() else value for name, value in given.items()})))
