"""Batches of images from each loader that is compared: those of the textbook, and ours.

`pil`: a map-style data set of PIL images, torchvision's first transforms sample by sample; `v2`: of tensors, transforms v2;
`v2-batch`: the same for a whole batch at once, for which torchvision draws one crop and one flip; `device`: all images on the
device, cropped and mirrored there batch by batch; `ours-host`, `ours-device`, `ours-workers`: our `loader` option. All shuffle,
crop, mirror (natural images) and normalise; all but `v2-batch` draw random numbers per image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler

from hpc_utils import datasets

OURS = ("ours-host", "ours-device", "ours-workers")

Epoch = Callable[[int], Iterator[tuple[Tensor, Tensor]]]


def batches(
    kind: str,
    dataset: str,
    batch: int,
    device: torch.device,
    *,
    workers: int = 0,
    pinned: bool = False,
    channels_last: bool = False,
) -> Epoch:
    """`epoch(steps)` yields so many batches: float images (B, C, H, W) and labels (B,).

    The textbook's come from a DataLoader with `workers` and, if `pinned`, page-locked memory, still on the host;
    `device` and ours are on `device`. Ours are in the layout that `channels_last` says.
    """
    if kind in OURS:
        return Ours(kind.removeprefix("ours-"), dataset, batch, device, workers, channels_last).epoch
    split = datasets.load(dataset, "train")
    if kind == "device":
        return OnDevice(split, batch, device).epoch
    samples = PilSamples(split) if kind == "pil" else TensorSamples(split)
    return Textbook(samples, batch, workers, pinned, whole=kind == "v2-batch").epoch


class Textbook:
    """A shuffling DataLoader; workers persist between epochs, and load only the requested batches."""

    def __init__(
        self, samples: PilSamples | TensorSamples, batch: int, workers: int, pinned: bool, whole: bool
    ) -> None:
        self.order, self.batch = Shuffled(len(samples)), batch
        self.loader = DataLoader(
            samples,
            batch_size=None if whole else batch,
            sampler=BatchSampler(self.order, batch, drop_last=True) if whole else self.order,
            num_workers=workers,
            pin_memory=pinned,
            persistent_workers=workers > 0,
        )

    def epoch(self, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
        self.order.count = steps * self.batch
        yield from self.loader


class Shuffled(Sampler):
    """`count` indices, reshuffled after every `size` samples; torch's RandomSampler has a fixed count."""

    def __init__(self, size: int) -> None:
        self.size, self.count = size, 0

    def __iter__(self) -> Iterator[int]:
        for begun in range(0, self.count, self.size):
            yield from torch.randperm(self.size)[: self.count - begun].tolist()

    def __len__(self) -> int:
        return self.count


class PilSamples(Dataset):
    """The data set as torchvision's own are written: image by image, through PIL."""

    def __init__(self, split: datasets.Images) -> None:
        transforms = torchvision().transforms
        self.images, self.labels = split.images, split.labels.tolist()
        self.grey = split.images.shape[3] == 1
        flip = [] if self.grey else [transforms.RandomHorizontalFlip()]
        self.transform = transforms.Compose(
            [
                transforms.RandomCrop(split.images.shape[1:3], padding=_padding(split)),
                *flip,
                transforms.ToTensor(),
                transforms.Normalize(split.mean, split.std),
            ]
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        from PIL import Image

        pixels = self.images[index]
        return self.transform(Image.fromarray(pixels[:, :, 0] if self.grey else pixels)), self.labels[index]


class TensorSamples(Dataset):
    """All images as one tensor, transforms v2 on what is taken of it: one image, or those of a list of indices."""

    def __init__(self, split: datasets.Images) -> None:
        v2 = torchvision().transforms.v2
        self.images, self.labels = _tensors(split)
        flip = [] if split.images.shape[3] == 1 else [v2.RandomHorizontalFlip()]
        self.transform = v2.Compose(
            [
                v2.RandomCrop(split.images.shape[1:3], padding=_padding(split)),
                *flip,
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(split.mean, split.std),
            ]
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int | list[int]) -> tuple[Tensor, Tensor]:
        return self.transform(self.images[index]), self.labels[index]


class OnDevice:
    """All images on the device as bytes; each batch is drawn, cropped, mirrored and normalised there as a whole."""

    def __init__(self, split: datasets.Images, batch: int, device: torch.device) -> None:
        self.images, self.labels = (tensor.to(device) for tensor in _tensors(split))
        self.mean, self.std = (torch.tensor(v, device=device).view(1, -1, 1, 1) for v in (split.mean, split.std))
        self.padding, self.flip = _padding(split), split.images.shape[3] == 3
        self.batch, self.device = batch, device

    def epoch(self, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.empty(0, dtype=torch.int64, device=self.device)
        for _ in range(steps):
            while len(order) < self.batch:
                order = torch.cat([order, torch.randperm(len(self.labels), device=self.device)])
            chosen, order = order[: self.batch], order[self.batch :]
            images = self.crop_and_flip(self.images[chosen])
            yield (images.float() / 255 - self.mean) / self.std, self.labels[chosen]

    def crop_and_flip(self, images: Tensor) -> Tensor:
        """Another crop of each image of (B, C, H, W), half of them mirrored."""
        count, channels, height, width = images.shape
        top, left = torch.randint(2 * self.padding + 1, (2, count, 1), device=self.device)
        rows = top + torch.arange(height, device=self.device)
        columns = left + torch.arange(width, device=self.device)
        if self.flip:
            columns = torch.where(torch.rand(count, 1, device=self.device) < 0.5, columns.flip(1), columns)
        image = torch.arange(count, device=self.device)[:, None, None, None]
        channel = torch.arange(channels, device=self.device)[:, None, None]
        return F.pad(images, [self.padding] * 4)[image, channel, rows[:, None, :, None], columns[:, None, None, :]]


class Ours:
    """Our trainer's own batches, outside of its loop."""

    def __init__(
        self,
        loader: str,
        dataset: str,
        batch: int,
        device: torch.device,
        workers: int,
        channels_last: bool,
        **options: int,
    ) -> None:
        from hpc_utils.config import RunConfig
        from hpc_utils.train.loader import Loader
        from hpc_utils.train.resolve import resolve

        config = RunConfig(
            workload="cnn",
            dataset=dataset,
            loader=loader,
            loader_workers=workers,
            channels_last=channels_last,
            **options,
        )
        workload = resolve(config)
        self.loader = Loader(workload.train, workload, config, device)
        self.size, self.batch, self.epochs = len(workload.train), batch, 0

    def epoch(self, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
        from hpc_utils.train.sampler import Sampler

        self.epochs += 1
        indices = Sampler(self.size, self.batch, steps=steps).epoch(self.epochs)
        return self.loader.batches(indices, self.epochs)


def _tensors(split: datasets.Images) -> tuple[Tensor, Tensor]:
    """Images uint8 (N, C, H, W) and labels (N,), copied into memory."""
    images = torch.tensor(split.images).permute(0, 3, 1, 2).contiguous()
    return images, torch.tensor(split.labels).long()


def _padding(split: datasets.Images) -> int:
    return max(1, split.images.shape[1] // 8)


def torchvision():
    from hpc_utils.train.vision import torchvision_models

    torchvision_models()  # a CPU build of torch needs the operators' schemas before torchvision
    import torchvision.transforms.v2

    return torchvision
