from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hpc_utils.config import RunConfig
from hpc_utils.datasets import Images
from hpc_utils.train import augment
from hpc_utils.train.images import ImageSource
from hpc_utils.train.resolve import resolve
from hpc_utils.train.vision import torchvision_models
from hpc_utils.train.workload import WorkloadError

CPU = torch.device("cpu")


def pictures(count: int = 40, height: int = 6, width: int = 5, channels: int = 3) -> torch.Tensor:
    return torch.randint(1, 256, (count, height, width, channels), generator=torch.Generator().manual_seed(1)).byte()


def naive(pixels: torch.Tensor, key: int, indices: torch.Tensor, padding: int, flip: bool) -> torch.Tensor:
    """One image at a time, with NumPy's padding, slicing and mirroring."""
    made = []
    for image, index in zip(pixels.numpy(), indices[:, None], strict=True):
        height, width, _ = image.shape
        top, left = (int(augment.integers(key, index, stream, 2 * padding + 1)) for stream in (0, 1))
        padded = np.pad(image, ((padding, padding), (padding, padding), (0, 0)))
        crop = padded[top : top + height, left : left + width]
        made.append(crop[:, ::-1] if flip and augment.integers(key, index, 2, 2) else crop)
    return torch.from_numpy(np.stack(made))


@pytest.mark.parametrize(("padding", "flip", "channels"), [(0, True, 3), (1, False, 3), (4, True, 1)])
def test_crop_and_flip_do_what_a_naive_loop_does(padding: int, flip: bool, channels: int) -> None:
    pixels, indices, key = pictures(channels=channels), torch.arange(100, 140), augment.key(3, 2)
    drawn = augment.draw(key, indices, 6, 5, padding=padding, flip=flip)
    made = augment.crop_and_flip(pixels, drawn, padding=padding)
    assert made.dtype == torch.uint8
    assert torch.equal(made, naive(pixels, key, indices, padding, flip))


def images(channels: int, count: int = 30) -> Images:
    pixels = pictures(count, 8, 8, channels).numpy()
    mean, std = (0.5, 0.4, 0.3)[:channels], (0.2, 0.25, 0.3)[:channels]
    return Images("x", "x", "train", pixels, np.arange(count), tuple("abc"), mean, std, "")


def batch(indices: list[int], epoch: int = 1, seed: int = 0) -> dict[int, bytes]:
    """Each sample's image, bit by bit, as a batch of these samples gives it."""
    made, labels = ImageSource(images(3), seed=seed, padding=2, flip=True).batch(torch.tensor(indices), epoch, CPU)
    assert labels.tolist() == indices
    return {index: image.numpy().tobytes() for index, image in zip(indices, made.contiguous(), strict=True)}


ALONE = {epoch: {index: batch([index], epoch)[index] for index in range(30)} for epoch in (1, 2)}


@given(order=st.permutations(range(30)), cuts=st.lists(st.integers(1, 29), max_size=4), epoch=st.sampled_from([1, 2]))
def test_an_image_is_the_same_in_any_batch_in_any_order(order: list[int], cuts: list[int], epoch: int) -> None:
    """So it does not matter which rank loads it, beside which others, or when."""
    edges = [0, *sorted(set(cuts)), 30]
    split = [order[start:stop] for start, stop in itertools.pairwise(edges)]
    made = {index: image for part in split for index, image in batch(part, epoch).items()}
    assert made == ALONE[epoch]


@pytest.mark.parametrize("size", [2, 3, 30])
def test_cutout_blanks_what_a_naive_loop_blanks(size: int) -> None:
    """The paper's square: around a centre anywhere in the image, clipped at its edges."""
    indices, key = torch.arange(100, 140), augment.key(3, 2)
    drawn = augment.draw(key, indices, 6, 5, cutout=size)
    made = augment.cut_out_(torch.ones(40, 3, 6, 5), drawn, size)
    for index, image in zip(indices, made, strict=True):
        row, column = int(augment.integers(key, index[None], 3, 6)), int(augment.integers(key, index[None], 4, 5))
        top, left = row - size // 2, column - size // 2
        expected = np.ones((3, 6, 5))
        expected[:, max(0, top) : top + size, max(0, left) : left + size] = 0
        np.testing.assert_array_equal(image, expected)


def test_cutout_blanks_to_the_mean_and_changes_nothing_else() -> None:
    """Its numbers are a stream of their own: crop and mirror image stay what they were."""
    indices, augmented = torch.arange(30), {"seed": 0, "padding": 2, "flip": True}
    whole, cut = (ImageSource(images(3), **augmented, cutout=size).batch(indices, 1, CPU)[0] for size in (0, 4))
    blank = (cut == 0).all(1, keepdim=True).expand_as(cut)
    assert blank.any() and torch.equal(cut[~blank], whole[~blank])


def test_normalisation_is_all_that_happens_without_augmentation() -> None:
    data = images(3)
    made, _ = ImageSource(data, seed=0).batch(torch.arange(30), 1, CPU)
    expected = (data.images / 255 - np.array(data.mean)) / np.array(data.std)
    np.testing.assert_allclose(made.permute(0, 2, 3, 1), expected, rtol=1e-5, atol=1e-5)


def test_draws_of_streams_epochs_seeds_and_neighbours_are_independent() -> None:
    def draw(epoch: int, *, seed: int = 0, stream: int = 0) -> torch.Tensor:
        return augment.integers(augment.key(seed, epoch), torch.arange(50_000), stream, 9)

    one = draw(1)
    for first, second in ((one, draw(1, stream=1)), (one, draw(2)), (one[:-1], one[1:]), (one, draw(1, seed=1))):
        assert stats.chisquare((first * 9 + second).bincount(minlength=81)).pvalue > 1e-6


# ImageNet's transforms, compared with torchvision's.


def test_boxes_are_drawn_as_by_torchvision() -> None:
    """Same distributions of area, ratio and place; every box lies in the image."""
    count, height, width = 4000, 64, 48
    torchvision_models()
    from torchvision.transforms.v2 import RandomResizedCrop

    torch.manual_seed(0)
    image, transform = torch.zeros(3, height, width), RandomResizedCrop(32)
    theirs = [transform.make_params([image]) for _ in range(count)]
    top, left, mirrored, tall, wide = augment.draw_boxes(augment.key(0, 1), torch.arange(count), height, width)
    assert (top >= 0).all() and (left >= 0).all() and (top + tall <= height).all() and (left + wide <= width).all()
    assert abs(mirrored.double().mean() - 0.5) < 0.03
    for name, made in (("top", top), ("left", left), ("height", tall), ("width", wide)):
        assert stats.ks_2samp(made, [int(box[name]) for box in theirs]).pvalue > 0.001


def test_a_box_that_never_fits_is_the_largest_in_the_middle() -> None:
    top, left, _, tall, wide = augment.draw_boxes(augment.key(0, 1), torch.arange(500), 300, 20)
    whole = tall == 27
    assert {*zip(top[whole].tolist(), left[whole].tolist(), wide[whole].tolist(), strict=True)} == {(136, 0, 20)}


@pytest.mark.parametrize("size", [24, 96])
def test_crops_are_resized_as_by_torchvision(size: int) -> None:
    torchvision_models()
    from torchvision.transforms.v2 import functional

    pixels = pictures(20, 48, 64)
    boxes = augment.draw_boxes(augment.key(0, 1), torch.arange(20), 48, 64)
    assert set(boxes[2].tolist()) == {0, 1}
    for made, image, (top, left, mirrored, tall, wide) in zip(
        augment.resized_crops(pixels, boxes, size), pixels.permute(0, 3, 1, 2), boxes.T.tolist(), strict=True
    ):
        expected = functional.resized_crop(image, top, left, tall, wide, [size, size])
        expected = expected.flip(2) if mirrored else expected
        assert (made.permute(2, 0, 1).int() - expected.int()).abs().max() <= 1  # its last step rounds otherwise
    expected = functional.center_crop(
        functional.resize(pixels.permute(0, 3, 1, 2), [round(size * 8 / 7)]), [size, size]
    )
    assert (augment.central_crop(pixels, size).permute(0, 3, 1, 2).int() - expected.int()).abs().max() <= 1


def test_imagenets_transforms_normalise_with_its_statistics() -> None:
    source = ImageSource(images(3), seed=0, size=4)
    made, _ = source.batch(torch.arange(3), 1, CPU)
    pixels = augment.central_crop(torch.from_numpy(source.pixels[:3]), 4).permute(0, 3, 1, 2) / 255
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in augment.IMAGENET)
    torch.testing.assert_close(made, (pixels - mean) / std)


def test_alternate_flips_mirror_each_image_in_every_other_epoch() -> None:
    indices, key = torch.arange(2000), augment.key(3, 0)

    def mirrored(epoch: int) -> torch.Tensor:
        return augment.draw(augment.key(3, epoch), indices, 6, 5, padding=1, flip=True, alternate=(key, epoch))[2]

    assert 900 < mirrored(1).sum() < 1100
    assert torch.equal(mirrored(1), 1 - mirrored(2)) and torch.equal(mirrored(1), mirrored(3))


def test_digits_are_not_mirrored() -> None:
    for options in ({"flip": "alternate"}, {"evaluate_mirrored": True}):
        with pytest.raises(WorkloadError, match="digits"):
            resolve(RunConfig(workload="cnn", **options))
