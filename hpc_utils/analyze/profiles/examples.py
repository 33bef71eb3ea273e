"""Profiles of other people that chapter 04 reads: their owners, sources and subjects.

The files stay out of the project: `folder` is where a copy lies, if there is one. Where one lies, its SHA-256 is recorded in
`values/`, so that others can tell whether theirs is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from .readers import Reports, gather
from .timeline import ProfileError


class Example(NamedTuple):
    """The profiles of one run.

    Attributes:
        name: as in the names of values. files: relative to the folder of examples. what: completes "a profile of ...".
        whose, source, licence: the source is a public repository and a folder in it.
    """

    name: str
    files: tuple[str, ...]
    what: str
    whose: str
    source: str
    licence: str

    @property
    def evidence(self) -> tuple[str, ...]:
        """Its files, as values name them."""
        return tuple(f"profile:{file}" for file in self.files)


_NERSC = (
    "NERSC, SC22 tutorial Deep Learning at Scale",
    "github.com/NERSC/sc22-dl-tutorial, sample_nsys_profiles",
    "none stated",
)
_KINETO = (
    "PyTorch, samples of the profiler's TensorBoard plugin",
    "github.com/pytorch/kineto, tb_plugin/samples",
    "BSD-3-Clause",
)
_MODDED = (
    "C. McCormick, in K. Jordan and others, modded-nanogpt",
    "github.com/KellerJordan/modded-nanogpt, records/track_1_short/2025-12-11_NorMuonOptimsAndFixes",
    "MIT",
)
_LOADER = ("nsys/loader-16workers-1xA100.nsys-rep",)
_DDP = ("nsys/ddp-4xA100-one-rank.nsys-rep",)
_EIGHT = tuple(f"torch/8xH100-compiled/rank{rank}.json.gz" for rank in range(8))
_BEFORE, _AFTER = ((f"torch/v100-resnet50-workers{workers}.pt.trace.json.gz",) for workers in (0, 4))

# Each file was compared with the one at its source: they are the same, byte for byte.
EXAMPLES = (
    Example("loader", _LOADER, "a network on one A100, fed by 16 loader workers", *_NERSC),
    Example("ddp", _DDP, "one rank of four of a DDP run on A100s", *_NERSC),
    Example("eight", _EIGHT, "a compiled language model on eight H100s", *_MODDED),
    Example("before", _BEFORE, "ResNet-50 on a V100 without loader workers", *_KINETO),
    Example("after", _AFTER, "ResNet-50 on a V100 with four loader workers", *_KINETO),
)


def read_all(
    folder: Path, examples: Iterable[Example] = EXAMPLES
) -> tuple[dict[str, tuple[Example, Reports]], dict[str, str]]:
    """Those that can be read, by name, and why the others cannot, without `folder` in the words."""
    opened, missing = {}, {}
    for one in examples:
        try:
            opened[one.name] = one, gather(folder / file for file in one.files)
        except ProfileError as error:
            missing[one.name] = str(error).replace(f"{folder}/", "")
    return opened, missing
