"""The site of `make docs`. Sphinx reads the clone itself, so that the links of a page work on GitHub and on the site.

Besides `docs/*.md` it shows the READMEs of the folders, the executed chapters of the committed sets, and docstrings.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path

import yaml
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

from hpc_utils.config import describe
from hpc_utils.provenance.system import markdown_table
from hpc_utils.records import schema

sys.modules.setdefault("rfc3987_syntax", None)  # as in launch.rank: slow, and needed by nothing here

ROOT = Path(__file__).resolve().parent.parent
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())

project = "Scaling compendium"
author = "the compendium's authors"
version = release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
suppress_warnings = ["misc.highlighting_failure"]  # Pygments does not know CSV
default_role = "code"  # in docstrings
highlight_language = "text"  # of a fence without a language
autodoc_typehints = "description"
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
myst_heading_anchors = 3
nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "gfm"  # tables of outputs
html_theme = "furo"
html_title = project
html_css_files = ["site.css"]
html_static_path = ["static"]
html_copy_source = html_show_copyright = False

# {chapter: its executed notebooks, or the one without outputs}
executed: dict[str, list[str]] = {}
for path in sorted(ROOT.glob("results/reference/*/notebooks/**/*.ipynb")):
    executed.setdefault(path.stem, []).append(str(path.relative_to(ROOT)))
CHAPTERS = {
    path.stem: executed.get(path.stem, [f"notebooks/{path.name}"])
    for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
}

include_patterns = [
    "*.md", "docs/*.md", "*/README.md", "companions/*/README.md", "env/ondemand/README.md", "results/reference/*/SYSTEM.md",
    *(notebook for notebooks in CHAPTERS.values() for notebook in notebooks),
]  # fmt: skip
# Folders into which Sphinx need not look.
exclude_patterns = [
    ".*", "*.egg-info", "build", "docs/_build", "tests", "data/[!R]*", "paper/build",
    *(f"results/{path.name}" for path in (ROOT / "results").iterdir() if path.name not in ("README.md", "reference")),
]  # fmt: skip

# The headings of the tables of columns in `docs/schema.md`.
HEADINGS = {
    "runs": "`csv/runs.csv`: one row per run (joined by `hpc collect`)",
    "epochs": "`runs/<run>/epochs.csv` and `csv/epochs.csv` (with `run_id` as first column): one row per epoch",
    "steps": "`runs/<run>/steps.csv.gz`: one row per step and rank",
    "ranks": "`runs/<run>/ranks.csv`: one row per rank",
    "monitor": "`runs/<run>/monitor/<host>.csv`, if requested: one row per device and sample",
}


def toctree(entries: list[str], *options: str) -> str:
    return "\n".join(["", "```{toctree}", *options, *entries, "```", ""])


def complete(app: Sphinx, name: str, source: list[str]) -> None:
    """Add what a page has on the site only: the navigation, the list of chapters, the tables of options and columns."""
    if name == "docs/index":  # a caption for each section, an entry for each link
        for section in source[0].split("\n## ")[1:]:
            links = re.findall(r"\[([^]]+)\]\(([^)#:]+)\.md\)", section)
            entries = [f"{title} <{page}>" for title, page in links]
            source[0] += toctree(entries, ":hidden:", f":caption: {section.partition(chr(10))[0]}")
    elif name == "docs/chapters":
        source[0] += toctree([entry(one) for notebooks in CHAPTERS.values() for one in notebooks], ":maxdepth: 1")
    elif name == "companions/README":
        companions = sorted(path.parent.name for path in ROOT.glob("companions/*/README.md"))
        source[0] += toctree(
            [f"{companion} </companions/{companion}/README>" for companion in companions], ":hidden:"
        )
    elif name == "SYSTEM":
        sets = sorted(path.parent.name for path in ROOT.glob("results/reference/*/SYSTEM.md"))
        source[0] += toctree([f"{one} </results/reference/{one}/SYSTEM>" for one in sets], ":hidden:")
    elif name == "docs/api":
        rows = ((f"`{row['name']}`", row["type"], row["default"], row["unit"], row["meaning"]) for row in describe())
        table = markdown_table(("option", "type", "default", "unit", "meaning"), rows)
        source[0] = source[0].replace("<!-- options -->", "\n".join(table))
    elif name == "docs/schema":
        source[0] = source[0].replace("<!-- columns -->", columns())


def columns() -> str:
    """The tables of the record schema, each below its heading."""
    lines = []
    for name, heading in HEADINGS.items():
        rows = ((f"`{column.name}`", column.unit, column.meaning) for column in schema.TABLES[name])
        lines += [f"### {heading}", "", *markdown_table(("column", "unit", "meaning"), rows), ""]
    return "\n".join(lines)


def entry(notebook: str) -> str:
    """Title, result set and page of a chapter."""
    first = "".join(json.loads((ROOT / notebook).read_text())["cells"][0]["source"])
    title = first.partition("\n")[0].removeprefix("# ")
    parts = Path(notebook).parts
    return (
        f"{title} ({parts[2] if parts[0] == 'results' else 'without outputs'}) </{notebook.removesuffix('.ipynb')}>"
    )


def follow(app: Sphinx, doctree: nodes.document) -> None:
    """A link to a chapter leads to its executed notebook, one to what the site has not to the repository."""
    page = Path(app.env.doc2path(app.env.docname))
    for link in [*doctree.findall(addnodes.pending_xref)]:
        if link["reftype"] != "myst":
            continue
        target = link["reftarget"]
        if link["refdomain"] == "doc" and target.startswith("notebooks/"):
            link["reftarget"] = CHAPTERS[Path(target).name][0].removesuffix(".ipynb")
        elif link["refdomain"] == "doc" and target not in app.env.found_docs:
            link.replace_self(in_repository(f"{target}.md", link.children))
        elif link["refdomain"] is None and (path := (page.parent / target).resolve()).is_dir():
            link.replace_self(in_repository(str(path.relative_to(ROOT)), link.children))
        elif link["refdomain"] is None and page.suffix == ".ipynb":  # to an anchor among the outputs
            is_there = f'id=\\"{target}\\"' in page.read_text()
            link.replace_self(
                nodes.reference("", "", *link.children, refuri=f"#{target}") if is_there else link.children
            )


def in_repository(path: str, content: list[nodes.Node]) -> nodes.Element | list[nodes.Node]:
    """A link to the repository whose address CITATION.cff has, or only its text."""
    if address := CITATION.get("repository-code"):
        return nodes.reference("", "", *content, refuri=f"{address}/blob/main/{path}", internal=False)
    return content


def as_text(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """What reStructuredText would take for markup in a docstring: bars, and letters that follow a name in backquotes."""
    lines[:] = [re.sub(r"(`[^`]+`)(?=\w)", r"\1\\ ", line.replace("|", "\\|")) for line in lines]


def start_page(app: Sphinx, error: Exception | None) -> None:
    """The site's address leads to its first page."""
    if not error:
        forward = '<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=docs/index.html">'
        (Path(app.outdir) / "index.html").write_text(f"{forward}<title>{project}</title>\n")


def setup(app: Sphinx) -> None:
    app.connect("source-read", complete)
    app.connect("doctree-read", follow)
    app.connect("autodoc-process-docstring", as_text)
    app.connect("build-finished", start_page)
