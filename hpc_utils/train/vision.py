"""Our example workloads: ResNet-18, ResNet-50 and a small CNN on the image data sets."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from hpc_utils import datasets
from hpc_utils.config import RunConfig

from . import augment
from .workload import Batch, Workload, correct


class ImageSource:
    """Images in memory or memory-mapped, augmented and normalised a whole batch at a time on the device.

    Args:
        images: as `datasets.load` returns them: uint8 (N, H, W, C).
        padding: pixels to shift by at most in a random crop; 0: none.
        flip: mirror half of the images.
    """

    def __init__(
        self, images: datasets.Images, *, seed: int, padding: int = 0, flip: bool = False, channels_last: bool = True
    ) -> None:
        self.pixels, self.labels = images.images, torch.from_numpy(np.array(images.labels))
        self.mean, self.std = torch.tensor(images.mean), torch.tensor(images.std)
        self.seed, self.padding, self.flip = seed, padding, flip
        self.channels_last = channels_last
        self._constants: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Tensor, epoch: int, device: torch.device) -> Batch:
        """Float images (B, C, H, W), normalised, and labels (B,), on `device`."""
        pixels = torch.from_numpy(self.pixels[indices.numpy()])  # a copy: (B, H, W, C) uint8
        labels = self.labels[indices]
        if device.type == "cuda":
            pixels, labels = (t.pin_memory().to(device, non_blocking=True) for t in (pixels, labels))
            indices = indices.to(device, non_blocking=True)
        if self.padding or self.flip:
            key = augment.key(self.seed, epoch)
            pixels = augment.crop_and_flip(pixels, key, indices, padding=self.padding, flip=self.flip)
        scale, shift = self._normalisation(device)
        images = torch.addcmul(shift, pixels.permute(0, 3, 1, 2).float(), scale)  # a view: channels last
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        return images.contiguous(memory_format=layout), labels

    def _normalisation(self, device: torch.device) -> tuple[Tensor, Tensor]:
        if device not in self._constants:
            pair = 1 / (255 * self.std), -self.mean / self.std
            self._constants[device] = tuple(constant.view(1, -1, 1, 1).to(device) for constant in pair)
        return self._constants[device]


def workload(config: RunConfig) -> Workload:
    """`resnet18`, `resnet50` or `cnn` on the data set that `config` names."""
    train, test = (datasets.load(config.dataset, split) for split in ("train", "test"))
    height, _, channels = train.images.shape[1:]
    natural = channels == 3  # mirrored digits are not digits
    augmentation = {"padding": max(1, height // 8), "flip": natural} if config.augment else {}
    return Workload(
        model=functools.partial(MODELS[config.workload], channels, len(train.classes), config.stem, height),
        train=ImageSource(train, seed=config.seed, channels_last=config.channels_last, **augmentation),
        test=ImageSource(test, seed=config.seed, channels_last=config.channels_last),
        loss=nn.CrossEntropyLoss(label_smoothing=config.label_smoothing),
        metrics={"accuracy": correct},
    )


def small_cnn(channels: int, classes: int, stem: str = "cifar", height: int = 8) -> nn.Module:
    """Two convolutions and two linear layers, without batch statistics; square images of 4n x 4n pixels."""
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(height // 4),  # the adaptive one has no deterministic backward pass on a GPU
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


def _resnet(name: str, channels: int, classes: int, stem: str = "cifar", height: int = 32) -> nn.Module:
    """torchvision's ResNet; the CIFAR stem (He et al. 2016, section 4.2) keeps 32x32 images at full size."""
    model = getattr(_torchvision_models(), name)(num_classes=classes)
    if stem == "cifar":
        model.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        model.maxpool = nn.Identity()
    elif channels != 3:
        model.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
    return model


MODELS: dict[str, Callable[[int, int, str, int], nn.Module]] = {  # channels, classes, stem, image height
    "resnet18": functools.partial(_resnet, "resnet18"),
    "resnet50": functools.partial(_resnet, "resnet50"),
    "cnn": small_cnn,
}

_operators: list[torch.library.Library] = []


def _torchvision_models():
    """torchvision.models, also where torch is a CPU build and torchvision's wheel was linked to CUDA.

    There its operators do not load and `import torchvision` fails on registering `nms`, unless the schemas
    exist before. No model here uses them.
    """
    if torch.version.cuda is None and torch.version.hip is None and not _operators:
        schemas = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            schemas.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _operators.append(schemas)  # the definitions live as long as the object
    import torchvision.models

    return torchvision.models
