"""Images as JPEG files, which a DataLoader decodes sample by sample: the workload of the study `loader-workers`.

The files are in memory, encoded when the run is set up, so that no disk is measured. The model is one linear layer: it stands for
a device that is never busy for long, so that the throughput is the loader's.
"""

from __future__ import annotations

import io

from torch import Tensor, nn

from hpc_utils import datasets

from .augment import IMAGENET
from .vision import torchvision_models
from .workload import Workload, correct

QUALITY = 90  # of Pillow's scale to 95
POOL = 8  # pixels whose mean is one input of the model


class Jpegs:
    """A map-style data set of the images of `datasets.load`, each decoded, cropped, flipped and normalised when it is asked for."""

    def __init__(self, images: datasets.Images, size: int) -> None:
        from PIL import Image

        torchvision_models()
        from torchvision import transforms

        self.labels = images.labels.tolist()
        self.files = []
        for pixels in images.images:
            Image.fromarray(pixels).save(file := io.BytesIO(), "JPEG", quality=QUALITY)
            self.files.append(file.getvalue())
        crop = [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
        self.transform = transforms.Compose([*crop, transforms.Normalize(*IMAGENET)])

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        from PIL import Image

        with Image.open(io.BytesIO(self.files[index])) as image:
            return self.transform(image), self.labels[index]


def jpegs(dataset: str = "tiny-imagenet", size: int = 64) -> Workload:
    """Build the workload on a data set of RGB images; `size`: edge of the crops in pixels."""
    train, test = (datasets.load(dataset, split) for split in ("train", "test"))
    inputs = 3 * (size // POOL) ** 2
    return Workload(
        model=lambda: nn.Sequential(nn.AvgPool2d(POOL), nn.Flatten(), nn.Linear(inputs, len(train.classes))),
        train=Jpegs(train, size),
        test=Jpegs(test, size),
        loss=nn.CrossEntropyLoss(),
        metrics={"accuracy": correct},
    )
