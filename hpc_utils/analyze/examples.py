"""Other people's profiles that chapter 04 reads: whose they are, where they come from, and what they are of.

The files are theirs and stay out of the project: `folder` is where a copy lies, if there is one. Where one lies, its
SHA-256 stands in `exports/`, so that others can tell whether theirs is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .reports import Reports, gather
from .timeline import ProfileError


@dataclass(frozen=True)
class Example:
    """One profile or the profiles of one run.

    Attributes:
        name: as in the names of values. files: relative to the folder of examples.
        what: in words, as it stands in sentences ("of ...").
        whose, source, licence: the source is a public repository and a folder in it.
    """

    name: str
    files: tuple[str, ...]
    what: str
    whose: str
    source: str
    licence: str

    def read(self, folder: Path) -> Reports:
        """Its timelines.

        Raises:
            ProfileError: a file is not there, or cannot be read.
        """
        return gather(folder / file for file in self.files)

    @property
    def evidence(self) -> tuple[str, ...]:
        """Its files, as values name them."""
        return tuple(f"profile:{file}" for file in self.files)


_NERSC = ("NERSC, SC22 tutorial Deep Learning at Scale", "github.com/NERSC/sc22-dl-tutorial, sample_nsys_profiles")
_KINETO = ("PyTorch, samples of the profiler's TensorBoard plugin", "github.com/pytorch/kineto, tb_plugin/samples")
_MODDED = (
    "C. McCormick, in K. Jordan and others, modded-nanogpt",
    "github.com/KellerJordan/modded-nanogpt, records/track_1_short/2025-12-11_NorMuonOptimsAndFixes",
)

# Each file was compared with the one at its source: they are the same, byte for byte.
EXAMPLES = (
    Example(
        "loader",
        ("nsys/loader-16workers-1xA100.nsys-rep",),
        "a network on one A100, fed by 16 loader workers",
        *_NERSC,
        "none stated",
    ),
    Example(
        "ddp",
        ("nsys/ddp-4xA100-one-rank.nsys-rep",),
        "one rank of four of a DDP run on A100s",
        *_NERSC,
        "none stated",
    ),
    Example(
        "eight",
        tuple(f"torch/8xH100-compiled/rank{rank}.json.gz" for rank in range(8)),
        "a compiled language model on eight H100s",
        *_MODDED,
        "MIT",
    ),
    Example(
        "before",
        ("torch/v100-resnet50-workers0.pt.trace.json.gz",),
        "ResNet-50 on a V100 without loader workers",
        *_KINETO,
        "BSD-3-Clause",
    ),
    Example(
        "after",
        ("torch/v100-resnet50-workers4.pt.trace.json.gz",),
        "ResNet-50 on a V100 with four loader workers",
        *_KINETO,
        "BSD-3-Clause",
    ),
)


def read_all(
    folder: Path, examples: Iterable[Example] = EXAMPLES
) -> tuple[dict[str, tuple[Example, Reports]], dict[str, str]]:
    """Those that can be read, by name, and why the others cannot, in words without `folder`."""
    opened, missing = {}, {}
    for one in examples:
        try:
            opened[one.name] = (one, one.read(folder))
        except ProfileError as why:
            missing[one.name] = str(why).replace(f"{folder}/", "")
    return opened, missing
