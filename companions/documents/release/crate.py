"""The description of a release for catalogues: CITATION.cff and `ro-crate-metadata.json` (RO-Crate 1.1).

Each run is an action with the software and its result set, after the Process Run Crate profile 0.5.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from mimetypes import MimeTypes
from pathlib import Path
from typing import Any

from hpc_utils import records
from hpc_utils.plural import counted

CITATION = "CITATION.cff"
REFERENCE = "results/reference"
PROCESS = "https://w3id.org/ro/wfrun/process/0.5"


class ReleaseRefused(ValueError):
    """A release cannot be made; one line for each reason."""

    exit_code = 2


def project(root: Path) -> dict[str, Any]:
    """The `project` table of pyproject.toml."""
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]


def citation(root: Path) -> dict[str, Any]:
    """CITATION.cff, with `license` as a list, the first is the code's, and `doi` ("" if there is none)."""
    import yaml

    cited = yaml.load((root / CITATION).read_text(), Loader=yaml.BaseLoader)  # only strings: 0.10 stays "0.10"
    dois = [identifier["value"] for identifier in cited.get("identifiers", ()) if identifier["type"] == "doi"]
    licences = cited["license"] if isinstance(cited["license"], list) else [cited["license"]]
    return cited | {"license": licences, "doi": cited.get("doi") or next(iter(dois), "")}


def name(author: Mapping[str, str]) -> str:
    """`Byron, Ada`, or the name of a group."""
    return author.get("name") or f"{author['family-names']}, {author['given-names']}"


def metadata(root: Path, files: Iterable[str], commit: str, day: str) -> dict[str, Any]:
    """`ro-crate-metadata.json` for `files` (paths in the archive); equal arguments give an equal description."""
    from rocrate.model import ContextEntity
    from rocrate.rocrate import ROCrate

    crate = ROCrate(version="1.1")
    cited = citation(root)
    package = project(root)

    def add(identifier: str, kind: str | list[str], /, **properties: Any) -> ContextEntity:
        return crate.add(ContextEntity(crate, identifier, properties={"@type": kind, **properties}))

    licences = [
        add(f"https://spdx.org/licenses/{licence}", "CreativeWork", name=licence) for licence in cited["license"]
    ]
    people = [
        add(
            author.get("orcid", f"#author-{number}"),
            "Organization" if "name" in author else "Person",
            name=name(author),
        )
        for number, author in enumerate(cited["authors"], 1)
    ]
    software = add(
        "#software", "SoftwareApplication",
        name=package["name"], description=package["description"], version=package["version"],
        identifier=f"git commit {commit}", url=cited.get("repository-code", "README.md"), license=licences[0],
        softwareRequirements=[f"Python {package['requires-python']}", *package["dependencies"]],
    )  # fmt: skip
    described = {
        "name": cited["title"],
        "description": cited["abstract"],
        "datePublished": cited.get("date-released", day),
        "version": cited["version"],
        "keywords": cited["keywords"],
        "license": licences,
        "author": people,
        "mainEntity": software,
        "conformsTo": add(PROCESS, ["CreativeWork", "Profile"], name="Process Run Crate", version="0.5"),
    }
    if cited["doi"]:
        described["identifier"] = f"https://doi.org/{cited['doi']}"
    for key, value in described.items():
        crate.root_dataset[key] = value
    for path in sorted(files):
        kind = MimeTypes().guess_type(path)[0]  # without the machine's own types
        crate.add_file(dest_path=path, properties={"name": Path(path).name, "encodingFormat": kind or "text/plain"})
    for folder in result_sets(root):
        runs = records.load(folder).runs
        data = crate.add_dataset(
            dest_path=f"{REFERENCE}/{folder.name}/",
            properties={"name": folder.name, "description": counted(len(runs), "run")},
        )
        for run in runs.to_dict("records"):
            properties = {
                "name": run["run_id"],
                "startTime": run["started"],
                "description": f"{records.identity.task(run)}, {run['parallel']} on {counted(run['world_size'], 'rank')} of "
                f"{counted(run['nodes'], 'node')}, {run['precision']}, global batch {run['global_batch']}, on {run['device']}; "
                f"measuring code {run['digest']}, commit {run['commit'] or 'unknown'}",
                "agent": people[0],
            }
            action = crate.add_action(software, f"#{folder.name}-{run['run_id']}", result=data, properties=properties)
            crate.root_dataset.append_to("mentions", action)
    return crate.metadata.generate()


def result_sets(root: Path) -> list[Path]:
    """The folders of the committed result sets."""
    return sorted((root / REFERENCE).glob("*/"))
