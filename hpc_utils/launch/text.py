"""Kinds of text in a cluster file. What reaches Slurm or a shell is checked here, once."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator


def only(pattern: str, allowed: str) -> AfterValidator:
    """Text of that pattern; `allowed` says it in words."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value, re.ASCII):
            raise ValueError(f"{value!r} is not {allowed}")
        return value

    return AfterValidator(check)


def _one_line(value: str) -> str:
    if not value.isprintable():
        raise ValueError(f"{value!r} is not one line of text")
    return value


Text = Annotated[str, AfterValidator(_one_line)]
Word = Annotated[str, only(r"[\w.,:@+=-]*", "made of letters, digits and _ . , : @ + = -")]
Label = Annotated[str, only(r"[a-z0-9][a-z0-9-]{0,30}", "a name of small letters, digits and -, at most 31 long")]
Module = Annotated[str, only(r"[\w.][\w./+-]*", "a module's name, such as cuda/12.6")]
Variable = Annotated[str, only(r"[A-Za-z_]\w*", "a variable's name")]
Option = Annotated[str, only(r"--[a-z][ -~]*", "one sbatch option in full, such as --hint=nomultithread")]
Memory = Annotated[str, only(r"(\d+[KMGT]?)?", "the memory of a node, such as 480G, or 0 for all of it")]
Gres = Annotated[str, only(r"([\w.-]+(:[\w.-]+)?)?", "a resource without a count, such as gpu or gpu:a100")]
Device = Annotated[str, only(r"([a-z0-9][a-z0-9-]*)?", "a GPU's name in small letters, such as a100 or mi250x")]
Time = Annotated[str, only(r"(\d+-)?\d{1,3}:\d\d:\d\d", "a time such as 01:30:00 or 2-00:00:00")]
