"""Source code: the file of a user's own workload, and code without what changes no measurement."""

from __future__ import annotations

import ast
import functools
import hashlib
import sys
from importlib.machinery import PathFinder
from pathlib import Path


def digest(workload: str) -> str:
    """8 hex digits of the code of a user's own workload, without comments and docstrings; "" if there is none."""
    code = (parsed(path.read_text(encoding="utf-8", errors="backslashreplace")) for path in files(workload))
    return "".join(hashlib.sha256(one.encode()).hexdigest()[:8] for one in code)


def files(workload: str) -> list[Path]:
    """The file of the module of a user's own workload, found as `python -m` would find it; none of a built-in one.

    The module is not imported, because a launcher must not run the code of the ranks.
    """
    if ":" not in workload:
        return []
    place = [str(Path.cwd()), *sys.path]
    for part in workload.partition(":")[0].split("."):
        spec = PathFinder.find_spec(part, place)
        if spec is None:
            return []
        place = list(spec.submodule_search_locations or ())
    return [Path(spec.origin)] if spec.has_location else []


@functools.lru_cache(maxsize=1024)
def parsed(source: str) -> str:
    """Python's rendering of the parsed code without docstrings; text that is not Python is unchanged, also behind a cell's magic."""
    if source.startswith("%%"):
        magic, _, rest = source.partition("\n")
        return f"{magic}\n{parsed(rest)}"
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return source
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)
