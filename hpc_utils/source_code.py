"""Source code: the files of a user's own workload or script, what a module imports, and code without what changes no measurement."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.util
import itertools
import json
import pkgutil
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from . import workspace

PACKAGES = {"site-packages", "dist-packages"}  # folders of installed packages
LIBRARIES = (Path(sysconfig.get_path("stdlib")).resolve(), Path(__file__).resolve().parent)


def is_own(workload: str) -> bool:
    """Whether a run's workload is a user's own: `module:function`, or a script with a loop of its own, `folder/script.py`."""
    return ":" in workload or is_script(workload)


def is_script(workload: str) -> bool:
    """Whether the workload is a script, which has a loop of its own."""
    return workload.endswith(".py")


def script_name(script: Path) -> str | None:
    """A script as the workload of its runs: its path below the folder in which modules are found.

    None if it is in none, no script, or a library's.
    """
    script = script.resolve()
    if script.suffix != ".py" or is_library(script):
        return None
    homes = [home for place in _homes() if script.is_relative_to(home := Path(place).resolve())]
    return script.relative_to(homes[0]).as_posix() if homes else None


def is_library(file: Path) -> bool:
    """Whether a file is of Python, of an installed package, or of the compendium."""
    return not PACKAGES.isdisjoint(file.parts) or any(map(file.is_relative_to, LIBRARIES))


def digest(workload: str) -> str:
    """8 hex digits of the code of a user's own workload (`files`), without comments and docstrings; "" if there is none."""
    code = files(workload)
    return digest_of(code) if code else ""


def digest_of(code: Iterable[Path]) -> str:
    """8 hex digits of the code of these modules, without comments and docstrings."""
    texts = (parsed(_text(path)) for path in code)
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8]


def files(workload: str) -> list[Path]:
    """The file of the module of a user's own workload, then the modules that it imports from beside it, from PYTHONPATH, or from
    packages that are installed in place (`pip install -e`); none of a built-in workload.

    The module or script is found as `python -m` would find it, or in the clone. It is not imported, because a launcher must not run the
    code of the ranks.
    """
    path, home = _located(workload)
    if path is None or not PACKAGES.isdisjoint(home.parts):
        return [path] if path else []
    return [path, *sorted(imported([path], home, elsewhere=True) - {path})]


def declared_options(workload: str) -> dict[str, Any]:
    """{name: default, None if it is no plain value} of the options that a script and the modules beside it declare by calls such as
    `add_argument("--width", default=8)`.

    Raises:
        SyntaxError: the script is no Python.
    """
    options = {}
    script, home = _located(workload)
    beside = sorted(imported([script], home) - {script})
    for tree in (
        *map(syntax, beside),
        ast.parse(_text(script), str(script)),
    ):  # the script's own come last, and count
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            words = [word.value for word in call.args if isinstance(word, ast.Constant)]
            keywords = {word.arg: word.value.value for word in call.keywords if isinstance(word.value, ast.Constant)}
            default = keywords.get("default", False if keywords.get("action") == "store_true" else None)
            options |= {word[2:]: default for word in words if isinstance(word, str) and word.startswith("--")}
    return options


def own_files(workload: str) -> dict[str, Path]:
    """{path from the folder in which its module is found: file} of `files`; none of the compendium's and of a library."""
    path, home = _located(workload)
    if path is None or path.is_relative_to(sys.prefix) or workload.startswith(("hpc_utils.", "companions.")):
        return {}
    if is_script(workload):
        home = Path(str(path).removesuffix(workload))
    return {
        file.relative_to(home).as_posix() if file.is_relative_to(home) else file.name: file
        for file in files(workload)
    }


def module_file(workload: str) -> Path | None:
    """The file of the module of a user's own workload; None if there is none, as of a built-in workload."""
    return _located(workload)[0]


def load_object(name: str) -> Any:
    """Import `module:name`; the working folder comes first on the path, as with `python`."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return pkgutil.resolve_name(name)


def _located(workload: str) -> tuple[Path | None, Path]:
    """The file of a user's own workload, and the folder in which its module was found."""
    if is_script(workload):
        scripts = (Path(place) / workload for place in _homes())
        script = next(filter(Path.is_file, scripts), None)
        return script, script.parent if script else Path()
    if ":" in workload:
        module = workload.partition(":")[0].split(".")
        for place in _homes():
            if path := _module(Path(place), module):
                return path, Path(place)
    return None, Path()


def _homes() -> tuple[str, ...]:
    """The folders in which modules are found."""
    return str(Path.cwd()), *sys.path, str(workspace.project())


def imported(
    sources: Iterable[Path], home: Path, packages: Collection[str] = (), *, elsewhere: bool = False
) -> set[Path]:
    """`sources` and the modules in `home` that they import, directly or not; those of `hpc_utils` only if they are in `packages`.

    Args:
        sources: modules and notebooks below `home`. packages: dotted names, such as `hpc_utils.records`. elsewhere: also modules of
            other folders in which Python finds them, except libraries.
    """
    visited_files: set[Path] = set()
    waiting = [(source, home) for source in sources]
    while waiting:
        path, place = waiting.pop()
        if path in visited_files:
            continue
        visited_files.add(path)
        stat = path.stat()
        for name in _imports(path, place, stat.st_mtime_ns, stat.st_size):
            if name.partition(".")[0] == "hpc_utils" and not any(
                f"{name}.".startswith(f"{package}.") for package in packages
            ):
                continue
            parts = name.split(".")
            found_in = place
            if elsewhere and not _module(place, parts[:1]):
                found_in = _place(parts[0], tuple(sys.path)) or place
            modules = (_module(found_in, parts[: number + 1]) for number in range(len(parts)))  # its packages, too
            waiting += [(module, found_in) for module in modules if module]
    return visited_files


@functools.lru_cache(maxsize=1024)
def _place(name: str, _: tuple[str, ...]) -> Path | None:
    """The folder of a module or package outside libraries, which is not imported; None if there is none. Cached for a `sys.path`."""
    try:
        spec = importlib.util.find_spec(name) if name else None
    except (ImportError, ValueError):  # such as of `__main__`
        return None
    if spec is None:
        return None
    folders = [Path(folder).resolve() for folder in spec.submodule_search_locations or ()]  # of a package
    file = Path(spec.origin or "").resolve()
    if is_library(folders[0] if folders else file) or not (folders or file.suffix == ".py"):
        return None
    return (folders[0] if folders else file).parent


def _module(home: Path, parts: Sequence[str]) -> Path | None:
    """The file of the module `parts` in the folder `home`, if it is there."""
    stem = home.joinpath(*parts)
    return next((path for path in (stem.with_suffix(".py"), stem / "__init__.py") if path.is_file()), None)


@functools.lru_cache(maxsize=1024)
def _imports(path: Path, home: Path, *_: int) -> list[str]:
    """The dotted names that a module or notebook imports, read once for each time of change and size; of `from a import b` both
    `a` and `a.b`, if `b` may be a module."""
    package = path.relative_to(home).parent.parts
    names = [".".join(package)]
    for node in itertools.chain.from_iterable(map(ast.walk, _trees(path))):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join(filter(None, (*above, node.module)))
            names += (base, *(f"{base}.{alias.name}" for alias in node.names))
    return names


def _trees(path: Path) -> Iterator[ast.Module]:
    """The syntax of a module, or of each cell of a notebook; none of what is no Python."""
    with contextlib.suppress(SyntaxError, ValueError, KeyError, TypeError):
        for source in code_cells(_text(path)) if path.suffix == ".ipynb" else [_text(path)]:
            yield ast.parse(source.partition("\n")[2] if source.startswith("%%") else source)


def syntax(path: Path) -> ast.Module:
    """The syntax of a module; empty if it is no Python."""
    return next(_trees(path), ast.Module([], []))


def code_cells(notebook: str) -> list[str]:
    """The code of a notebook's cells, in order.

    Raises:
        ValueError, KeyError, TypeError: it is no notebook.
    """
    return ["".join(cell["source"]) for cell in json.loads(notebook)["cells"] if cell["cell_type"] == "code"]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="backslashreplace")  # with "\n" for every line ending


@functools.lru_cache(maxsize=1024)
def parsed(source: str) -> str:
    """The parsed code without docstrings, alike in all versions of Python; text that is not Python is unchanged, also behind a
    cell's magic."""
    if source.startswith("%%"):
        magic, _, code = source.partition("\n")
        return f"{magic}\n{parsed(code)}"
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return source
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        if isinstance(node, ast.JoinedStr):  # Python 3.12.1 has an empty text behind a nested format
            node.values = [part for part in node.values if not (isinstance(part, ast.Constant) and part.value == "")]
    return _rendered(tree)


def _rendered(part: Any) -> str:
    """A part of a syntax tree without empty fields: versions of Python differ in those, and `ast.unparse` in its quotes."""
    if isinstance(part, ast.AST):
        fields = [f"{name}={_rendered(value)}" for name, value in ast.iter_fields(part) if value not in (None, [])]
        return f"{type(part).__name__}({', '.join(fields)})"
    if isinstance(part, list):
        return f"[{', '.join(map(_rendered, part))}]"
    return repr(part)
