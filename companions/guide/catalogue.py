"""The catalogue of symptoms as chapter 11 shows it, each reproduced or recorded, and NCCL's variables."""

from __future__ import annotations

import inspect
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from hpc_utils.launch import cluster, symptoms
from hpc_utils.launch.symptoms import Symptom

from .reproductions import REPRODUCTIONS

LONGEST = 160  # characters of a line that is shown


class Checked(NamedTuple):
    """How a symptom was checked ("reproduced", "not reproduced here", "recorded", "not recognised"), the line that it is known by, its
    code or report, and the last line with the fix."""

    how: str
    line: str
    more: str
    fixed: str


def check(name: str, symptom: Symptom, outputs: Mapping[str, tuple[str, str]]) -> Checked:
    """`outputs`: as of `reproductions.run`, the output of each symptom as it fails, and with the fix."""
    if name not in outputs:
        shown = symptoms.first_cause(symptom.example)
        how = "recorded" if shown and shown.name == name else "not recognised"
        report = f"*Report:* <{symptom.report}>" if symptom.report else ""
        return Checked(how, _line(shown), report, "not executed here.")
    broken, fixed = outputs[name]
    shown = symptoms.first_cause(broken)
    is_mended = symptoms.first_cause(fixed) is None and fixed.endswith("passed\n")
    how = "reproduced" if is_mended and shown and shown.name == name else "not reproduced here"
    code = f"```python\n{inspect.getsource(REPRODUCTIONS[name][0])}```"
    return Checked(how, _line(shown), code, fixed.splitlines()[-1] if fixed else "not executed here.")


def symptom_table(outputs: Mapping[str, tuple[str, str]]) -> pd.DataFrame:
    """A row for each symptom: symptom, what it is, kind, checked, and its section in Markdown."""
    rows = []
    for name, symptom in symptoms.catalogue().items():
        checked = check(name, symptom, outputs)
        section = (
            f'<a id="{name}"></a>\n\n### {symptom.title}\n\n`{name}`, {checked.how}\n\n```text\n{checked.line}\n```\n\n'
            f"*Fix:* {symptom.fix}.\n\n*Source:* <{symptom.source}>\n\n{checked.more}\n\n*With the fix:* {checked.fixed}"
        )
        rows.append([name, symptom.title, symptom.kind.value, checked.how, section])
    return pd.DataFrame(rows, columns=["symptom", "what it is", "kind", "checked", "section"])


def index(table: pd.DataFrame) -> str:
    """The rows of `symptom_table` as a table in Markdown that leads to the sections."""
    rows = "".join(
        f"| [`{name}`](#{name}) | {title} | {kind} | {how} |\n"
        for name, title, kind, how, _ in table.itertuples(index=False)
    )
    return f"| symptom | what it is | kind | checked |\n|---|---|---|---|\n{rows}"


def variable_table() -> pd.DataFrame:
    """A row for each variable of NCCL that matters: what it does, when it matters, and the site files that set it."""
    sites: dict[str, dict[str, str]] = defaultdict(dict)
    for name in cluster.known():
        site = cluster.read_cluster(name)
        interface = dict.fromkeys(["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"], site.network.interface)
        for node in site.nodes.values():
            for variable, value in (interface | node.variables).items():
                if value:
                    sites[variable][name] = value
    described = tomllib.loads(Path(symptoms.__file__).with_name("variables.toml").read_text())
    rows = [
        [
            variable,
            about["does"],
            about["matters"],
            "; ".join(f"{site}: {value}" for site, value in sites[variable].items()) or "none",
        ]
        for variable, about in described.items()
    ]
    return pd.DataFrame(rows, columns=["variable", "what it does", "when it matters", "set by"])


def _line(shown: symptoms.Finding | None) -> str:
    return shown.text[:LONGEST] if shown else "(no output)"
