"""The description of a release for catalogues: CITATION.cff, `.zenodo.json` and `ro-crate-metadata.json` (RO-Crate 1.1).

Each run is an action with the software and its result set, after the Process Run Crate profile 0.5.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from mimetypes import MimeTypes
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocrate.model import ContextEntity
    from rocrate.rocrate import ROCrate

CITATION = "CITATION.cff"
REFERENCE = "results/reference"
NEEDED = ("title", "authors", "version", "license", "abstract", "keywords")
PROCESS = "https://w3id.org/ro/wfrun/process/0.5"
# In addition to Python's own types; `mimetypes.guess_type` would also read the machine's files.
TYPES = {
    ".ipynb": "application/x-ipynb+json", ".md": "text/markdown", ".toml": "application/toml", ".cff": "application/yaml",
    ".bib": "application/x-bibtex", ".gz": "application/gzip",
}  # fmt: skip
# Folders that are described as a whole.
FOLDERS = {
    "hpc_utils/": "The Python package: from a study file to jobs, records, figures and documents",
    "tests/": "The tests, laid out like the package",
    "jobs/": "Job scripts, study files (what to run) and cluster files (where)",
    "env/": "Installation: pinned versions, container definitions, a module, the Open OnDemand app",
    "benchmarks/": "Measurements side by side with other programs",
}


class ReleaseRefused(ValueError):
    """A release cannot be made; one line for each reason."""

    exit_code = 2


def project(root: Path) -> dict[str, Any]:
    """The `project` table of pyproject.toml.

    Raises:
        ReleaseRefused: it is missing or invalid.
    """
    try:
        return tomllib.loads((root / "pyproject.toml").read_text())["project"]
    except (OSError, KeyError, ValueError) as error:
        raise ReleaseRefused(f"pyproject.toml is missing or invalid: {error}") from None


def citation(root: Path) -> dict[str, Any]:
    """CITATION.cff, with `license` as a list and `doi` ("" if there is none).

    Raises:
        ReleaseRefused: it is missing, invalid or incomplete.
    """
    import yaml

    try:
        cited = yaml.load((root / CITATION).read_text(), Loader=yaml.BaseLoader)  # only strings: 0.10 stays "0.10"
    except (OSError, yaml.YAMLError) as error:
        raise ReleaseRefused(f"{CITATION} is missing or invalid: {error}") from None
    cited = cited if isinstance(cited, dict) else {}
    if missing := [name for name in NEEDED if not cited.get(name)]:
        raise ReleaseRefused(f"{CITATION} lacks {', '.join(missing)}")
    dois = [one["value"] for one in cited.get("identifiers", ()) if one.get("type") == "doi"]
    licences = cited["license"] if isinstance(cited["license"], list) else [cited["license"]]
    return cited | {"license": licences, "doi": cited.get("doi") or next(iter(dois), "")}


def name(author: Mapping[str, str]) -> str:
    """`Ada Byron`, or the name of a group."""
    return author.get("name") or " ".join(filter(None, (author.get("given-names"), author.get("family-names"))))


def zenodo(root: Path, when: datetime) -> dict[str, Any]:
    """`.zenodo.json`: the fields of Zenodo's deposit form, which takes one licence: that of the code."""
    cited = citation(root)
    people = []
    for author in cited["authors"]:
        given, family = author.get("given-names"), author.get("family-names")
        person = {"name": f"{family}, {given}" if family and given else name(author)}
        person |= {"affiliation": author["affiliation"]} if "affiliation" in author else {}
        person |= {"orcid": author["orcid"].rsplit("/", 1)[-1]} if "orcid" in author else {}
        people.append(person)
    return {
        "title": cited["title"],
        "upload_type": "software",
        "version": cited["version"],
        "publication_date": cited.get("date-released") or when.date().isoformat(),
        "description": cited["abstract"].strip(),
        "creators": people,
        "keywords": cited["keywords"],
        "access_right": "open",
        "license": cited["license"][0].lower(),
        "notes": f"Licences: {', '.join(cited['license'])}; REUSE.toml gives the licence of each file.",
    } | ({"doi": cited["doi"]} if cited["doi"] else {})


def metadata(root: Path, files: Mapping[str, Path], commit: str, when: datetime) -> dict[str, Any]:
    """`ro-crate-metadata.json` for `files` ({path in the archive: file}); equal arguments give an equal description."""
    from rocrate.rocrate import ROCrate

    crate, cited, own = ROCrate(version="1.1"), citation(root), project(root)
    terms = {
        one: _add(crate, f"https://spdx.org/licenses/{one}", "CreativeWork", name=one) for one in cited["license"]
    }
    people = [
        _add(crate, author.get("orcid") or f"#author-{number}", "Person" if "family-names" in author else "Organization",
             name=name(author), **{key: author[key] for key in ("affiliation",) if key in author})
        for number, author in enumerate(cited["authors"], 1)
    ]  # fmt: skip
    software = _add(
        crate, "#software", "SoftwareApplication", name=own["name"], description=own["description"], version=own["version"],
        identifier=f"git commit {commit}", url=cited.get("repository-code") or "README.md", license=terms[own["license"]],
        softwareRequirements=[f"Python {own['requires-python']}", *own["dependencies"]],
    )  # fmt: skip
    properties = {
        "name": cited["title"],
        "description": cited["abstract"].strip(),
        "datePublished": cited.get("date-released") or when.date().isoformat(),
        "version": cited["version"],
        "keywords": cited["keywords"],
        "license": list(terms.values()),
        "author": people,
        "mainEntity": software,
        "conformsTo": _add(crate, PROCESS, ["CreativeWork", "Profile"], name="Process Run Crate", version="0.5"),
    } | ({"identifier": f"https://doi.org/{cited['doi']}"} if cited["doi"] else {})
    for key, value in properties.items():
        crate.root_dataset[key] = value
    for folder, about in FOLDERS.items():
        if any(path.startswith(folder) for path in files):
            crate.add_dataset(dest_path=folder, properties={"name": folder.rstrip("/"), "description": about})
    sets = result_sets(files)
    for path, file in sorted(files.items()):
        if not path.startswith((*FOLDERS, *(f"{folder}/runs/" for folder in sets))):
            crate.add_file(dest_path=path, properties=_file(path, file.read_bytes()))
    actions = (action for folder in sets for action in _runs(crate, root, folder, software, people[0]))
    crate.root_dataset["mentions"] = list(actions)
    return crate.metadata.generate()


def result_sets(files: Iterable[str]) -> list[str]:
    """The folders of the result sets among the paths `files`."""
    parts = (path.split("/") for path in files if path.startswith(f"{REFERENCE}/"))
    return sorted({"/".join(part[:3]) for part in parts if len(part) > 3})


def _add(crate: ROCrate, identifier: str, kind: str | list[str], /, **properties: Any) -> ContextEntity:
    from rocrate.model import ContextEntity

    return crate.add(ContextEntity(crate, identifier, properties={"@type": kind, **properties}))


def _file(path: str, content: bytes) -> dict[str, Any]:
    suffix = PurePosixPath(path).suffix
    described = {
        "name": PurePosixPath(path).name,
        "contentSize": str(len(content)),
        "sha256": hashlib.sha256(content).hexdigest(),
        "encodingFormat": TYPES.get(suffix) or MimeTypes().guess_type(path)[0] or "text/plain",
    }
    if suffix == ".ipynb":
        lines = (line for cell in json.loads(content)["cells"] for line in "".join(cell["source"]).splitlines())
        title = next((line.lstrip("# ").strip() for line in lines if line.startswith("# ")), "")
        described |= {"@type": ["File", "SoftwareSourceCode"], "programmingLanguage": "Python"}
        described |= {"description": title} if title else {}
    return described


def _runs(
    crate: ROCrate, root: Path, folder: str, software: ContextEntity, agent: ContextEntity
) -> Iterator[ContextEntity]:
    """The result set as a data set, and an action for each of its runs."""
    from hpc_utils import records

    found = records.load(root / folder).runs
    alias = PurePosixPath(folder).name
    data = crate.add_dataset(dest_path=f"{folder}/", properties={"name": alias, "description": f"{len(found)} runs"})
    for run in found.to_dict("records"):
        action = _add(
            crate, f"#{alias}-{run['run_id']}", "CreateAction", name=run["run_id"], startTime=run["started"],
            actionStatus="http://schema.org/CompletedActionStatus",
            description=f"{run['workload']} on {run['dataset']}, {run['parallel']} on {run['world_size']} ranks of "
            f"{run['nodes']} nodes, {run['precision']}, global batch {run['global_batch']}, on {run['device']}; measuring "
            f"code {run['digest']}, commit {run['commit'] or 'unknown'}",
        )  # fmt: skip
        action["instrument"], action["result"], action["agent"] = software, data, agent
        yield action
