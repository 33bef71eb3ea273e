"""Text that may leave this machine: its own folders taken out of paths."""

from __future__ import annotations

import re
from pathlib import Path

from hpc_utils import paths


def portable(text: str) -> str:
    """`text` with the clone's folder, the results' and the home folder taken out of its paths."""
    for folder, stands in ((paths.results(), "results"), (paths.root(), "."), (Path.home(), "~")):
        if folder != Path("/"):  # the home of some containers
            text = re.sub(re.escape(str(folder)) + r"(?![\w.-])", stands, text)
    return text
