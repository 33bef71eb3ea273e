"""The built-in workloads: ResNet-18, ResNet-50 and two small CNNs on the image data sets."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import nn

from hpc_utils import datasets
from hpc_utils.config import RunConfig

from .images import ImageSource
from .workload import Workload, WorkloadError, correct


def workload(config: RunConfig) -> Workload:
    """Build `resnet18`, `resnet50`, `cnn` or `mnist_cnn` on the configured data set."""
    train, test = (datasets.load(config.dataset, split) for split in ("train", "test"))
    height, _, channels = train.images.shape[1:]
    natural = channels == 3  # digits must not be mirrored
    if not natural and (config.flip != "random" or config.evaluate_mirrored):
        raise WorkloadError(f"flip=alternate and evaluate_mirrored mirror images, but {config.dataset} has digits")
    augmentation = {}
    if config.augment and config.image_size:
        augmentation = {"crop": True}
    elif config.augment:
        augmentation = {"padding": max(1, height // 8), "flip": natural, "cutout": config.cutout}
        augmentation["alternate"] = config.flip == "alternate"
    common = {"channels_last": config.channels_last, "pin_memory": config.pin_memory, "size": config.image_size}
    common |= {"seed": config.seed}
    size = config.image_size or height
    return Workload(
        model=functools.partial(MODELS[config.workload], channels, len(train.classes), config.stem, size),
        train=ImageSource(train, **common, **augmentation),
        test=ImageSource(test, **common),
        loss=nn.CrossEntropyLoss(label_smoothing=config.label_smoothing),
        metrics={"accuracy": correct},
    )


def small_cnn(channels: int, classes: int, stem: str = "cifar", height: int = 8) -> nn.Module:
    """Two convolutions and two linear layers, without batch norm, for square images of 4n x 4n pixels."""
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(height // 4),  # adaptive pooling has no deterministic backward pass on a GPU
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


def mnist_cnn(channels: int, classes: int, stem: str = "cifar", height: int = 28) -> nn.Module:
    """Convolution, ReLU and pooling, twice, and two linear layers, for square images of 4n x 4n pixels."""
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) ** 2, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


def _resnet(name: str, channels: int, classes: int, stem: str = "cifar", height: int = 32) -> nn.Module:
    """torchvision's ResNet; the CIFAR stem (He et al. 2016, section 4.2) keeps 32x32 images at full size."""
    model = getattr(torchvision_models(), name)(num_classes=classes)
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
    "mnist_cnn": mnist_cnn,
}

_operators: list[torch.library.Library] = []


def torchvision_models():
    """Import torchvision.models, even with a CPU build of torch and a CUDA build of torchvision.

    In that combination `import torchvision` fails while registering `nms`, unless the operator schemas already exist. The
    models here do not use these operators.
    """
    if torch.version.cuda is None and torch.version.hip is None and not _operators:
        schemas = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            schemas.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _operators.append(schemas)  # the definitions exist as long as the object
    import torchvision.models

    return torchvision.models
