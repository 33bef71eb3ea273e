"""Commands in the pages of the project, and the outputs that the pages show."""

from __future__ import annotations

import re

FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.M | re.S)
NEEDS = re.compile(r"needs a (cluster|GPU)")  # behind a command that is only tried as a dry run
MEASURED = r"\S*results/|\b[0-9a-f]{8,12}\b|\d[\d,.:]*"  # in an output: folders, digests and numbers


def commands(text: str, kind: str) -> dict[str, str]:
    """{command: what stands behind its #} of the fences of a kind, in their order."""
    parts = [
        line.partition(" #") for fence, block in FENCE.findall(text) if fence == kind for line in block.splitlines()
    ]
    return {command.strip(): about.strip() for command, _, about in parts if command.strip()}


def outputs(text: str) -> dict[str, str]:
    """{command: its output}: a fence without a language below a block of commands is the output of the last one."""
    pairs = re.findall(r"^```sh[^\n]*\n(.*?)^```\n[^`]*?^```\n(.*?)^```$", text, re.M | re.S)
    return {block.splitlines()[-1].partition(" #")[0].strip(): output for block, output in pairs}


def require_shown(shown: str, printed: str, *, exact: bool = False) -> None:
    """Each line that a page shows is printed, with any numbers, digests and folders in place of its own, unless `exact`; `...` and
    HOST stand for anything."""

    def masked(text: str) -> list[str]:
        return [" ".join((line if exact else re.sub(MEASURED, "#", line)).split()) for line in text.splitlines()]

    real = "\n".join(masked(printed))
    for line in masked(shown.replace("HOST", "...")):
        assert re.search(re.escape(line).replace(r"\.\.\.", ".*"), real), f"{line}\nis not in\n{real}"
