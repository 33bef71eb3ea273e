"""What the writers of Typst and TeX share: our nodes become raw passages of theirs, and pandoc writes the rest."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

from .tree import Node, bare, raw, replaced


def convert(blocks: list[Node], target: str, change: Callable[[Node], list[Node] | None], *options: str) -> str:
    """Blocks as Typst or LaTeX, without a preamble; `change` replaces our nodes."""
    import pypandoc

    tree = {"pandoc-api-version": _version(), "meta": {}, "blocks": bare(replaced(blocks, change))}
    return pypandoc.convert_text(
        json.dumps(tree), target, format="json", extra_args=["--wrap=none", *options]
    ).strip()


@functools.cache
def _version() -> list[int]:
    import pypandoc

    return json.loads(pypandoc.convert_text("", "json", format="commonmark"))["pandoc-api-version"]


def around(target: str, before: str, nodes: list[Any], after: str) -> list[Node]:
    """Inlines between two raw passages."""
    return [raw(target, before), *nodes, raw(target, after)]
