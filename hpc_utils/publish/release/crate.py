"""ro-crate-metadata.json: the release told to machines, as an RO-Crate 1.1 (https://w3id.org/ro/crate/1.1).

Each run is a folder and the action that made it, as the Process Run Crate profile 0.5 has it.
"""

from __future__ import annotations

import hashlib
import json
import mimetypes
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from hpc_utils.records import packed

from . import citation, licences
from .reports import REFERENCE, sets

if TYPE_CHECKING:
    from rocrate.model import ContextEntity
    from rocrate.rocrate import ROCrate

FILE = "ro-crate-metadata.json"
VERSION = "1.1"  # what the profile builds on
PROCESS = "https://w3id.org/ro/wfrun/process/0.5"
SOFTWARE = "#scaling-compendium"
PYTHON = "https://www.python.org/"
TYPES = {
    ".ipynb": "application/x-ipynb+json", ".md": "text/markdown", ".toml": "application/toml", ".cff": "application/yaml",
    ".py": "text/x-python", ".bib": "application/x-bibtex", ".csv": "text/csv", ".pdf": "application/pdf",
    ".png": "image/png", ".json": "application/json", ".html": "text/html", ".gz": "application/gzip", ".svg": "image/svg+xml",
    ".jsonl": "application/jsonl", ".zip": "application/zip",
}  # fmt: skip
KINDS = {
    ".csv": "Table", ".json": "Record", ".pdf": "Document or figure", ".png": "Figure", ".md": "Page", ".ipynb": "Notebook",
    ".html": "Report", ".jsonl": "Runs", ".gz": "Table, compressed", ".zip": "Profiles and monitors of the runs", ".bib": "Bibliography", ".toml": "Settings", ".cff": "How to cite this",
}  # fmt: skip
LICENCE = "SPDX licence; its text lies in LICENSES/, and REUSE.toml says which file stands under which"
# What a reader finds where; files below are told one by one only where they are evidence or text.
ROOMS = {
    "hpc_utils/": "The Python package: from a study file to jobs, records, figures and texts",
    "tests/": "The tests, laid out like the package",
    "jobs/": "Job scripts, study files (what to run) and cluster files (where)",
    "env/": "How to install: pinned versions, Apptainer definitions, a module, the Open OnDemand app",
    "benchmarks/": "Measurements side by side with other programs",
}


def metadata(files: Mapping[str, bytes], commit: str, when: datetime) -> bytes:
    """The crate's description of `files` ({path: content}); equal files, commit and time give equal bytes."""
    from rocrate.rocrate import ROCrate

    crate, cited, project = ROCrate(version=VERSION), citation.read(files), citation.project(files)
    licence = licences.of(files)
    terms = _licences(crate, sorted({*citation.licences(cited), *licence.values()}))
    root = crate.root_dataset
    root["name"], root["description"] = cited["title"], cited["abstract"].strip()
    root["datePublished"] = cited.get("date-released") or when.date().isoformat()
    root["version"], root["keywords"] = cited["version"], list(cited["keywords"])
    root["license"] = [terms[name] for name in citation.licences(cited)]
    people = list(_people(crate, cited))
    root["author"] = people if len(people) > 1 else people[0]
    root["conformsTo"] = crate.add(
        _entity(crate, PROCESS, ["CreativeWork", "Profile"], name="Process Run Crate", version="0.5")
    )
    if found := citation.doi(cited):
        root["identifier"] = f"https://doi.org/{found}"
    root["mainEntity"] = crate.add(
        _entity(
            crate, SOFTWARE, "SoftwareApplication", name=project["name"], description=project["description"],
            version=project["version"], identifier=f"git commit {commit}",
            url=cited.get("repository-code") or cited.get("url") or "README.md", license=terms[project["license"]],
            softwareRequirements=[f"Python {project['requires-python']}", *project["dependencies"]],
        )
    )  # fmt: skip
    crate.add(
        _entity(
            crate, PYTHON, "ComputerLanguage", name="Python", url=PYTHON, identifier=PYTHON,
            version=project["requires-python"],
        )
    )  # fmt: skip
    for room, says in ROOMS.items():
        if any(path.startswith(room) for path in files):
            crate.add_dataset(dest_path=room, properties={"name": room.rstrip("/"), "description": says})
    _files(crate, files, licence, terms, project["version"])
    root["mentions"] = [action for folder in sets(files) for action in _runs(crate, folder, files, people[0])]
    return (json.dumps(crate.metadata.generate(), indent=1, ensure_ascii=False) + "\n").encode()


def _entity(crate: ROCrate, own: str, kind: str | list[str], /, **told: Any) -> ContextEntity:
    from rocrate.model import ContextEntity

    return ContextEntity(crate, own, properties={"@type": kind, **told})


def _licences(crate: ROCrate, names: list[str]) -> dict[str, ContextEntity]:
    return {
        name: crate.add(
            _entity(
                crate,
                f"https://spdx.org/licenses/{name}",
                "CreativeWork",
                name=name,
                identifier=name,
                description=LICENCE,
            )
        )
        for name in names
    }


def _people(crate: ROCrate, cited: Mapping[str, Any]) -> Iterator[ContextEntity]:
    for number, author in enumerate(cited["authors"], 1):
        kind = "Person" if author.get("family-names") else "Organization"
        told = {"affiliation": author["affiliation"]} if author.get("affiliation") else {}
        own = author.get("orcid") or author.get("website") or f"#author-{number}"
        yield crate.add(_entity(crate, own, kind, name=citation.name(author), **told))


def _files(
    crate: ROCrate,
    files: Mapping[str, bytes],
    licence: Mapping[str, str],
    terms: Mapping[str, ContextEntity],
    version: str,
) -> None:
    """Every file that is no part of a room."""
    said = dict(_said(files))
    for path in sorted(files):
        if path.startswith(tuple(ROOMS)):
            continue
        told = {
            "name": PurePosixPath(path).name,
            "description": said.get(path) or _kind(path),
            "contentSize": str(len(files[path])),
            "sha256": hashlib.sha256(files[path]).hexdigest(),
            "encodingFormat": TYPES.get(PurePosixPath(path).suffix) or mimetypes.guess_type(path)[0] or "text/plain",
        }
        if path.startswith("notebooks/") and path.endswith(".ipynb"):
            told |= {
                "@type": ["File", "SoftwareSourceCode"],
                "programmingLanguage": {"@id": PYTHON},
                "version": version,
            }
        if path in licence:
            told["license"] = terms[licence[path]]
        crate.add_file(dest_path=path, properties=told)


def _said(files: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    """What each notebook, figure and table says of itself, by its path."""
    for path, content in files.items():
        part = path.split("/")
        if path.endswith(".ipynb"):
            yield path, _title(content)
        elif path.startswith(REFERENCE) and part[3:4] == ["exports"] and path.endswith(".json"):
            page = json.loads(content)
            yield path, f"Tables and figures that {page['notebook']} exports"
            for one in (*page["figures"].values(), *page["tables"].values()):
                yield from ((f"{'/'.join(part[:3])}/{own}", one["caption"]) for own in one["files"])


def _kind(path: str) -> str:
    """What a file is that does not say it itself."""
    suffix, of = (
        PurePosixPath(path).suffix,
        f" of the result set {path.split('/')[2]}" if path.startswith(REFERENCE) else "",
    )
    return KINDS.get(suffix, "File") + of


def _title(notebook: bytes) -> str:
    """A notebook's first heading; empty where it has none."""
    lines = (line for cell in json.loads(notebook)["cells"] for line in "".join(cell["source"]).splitlines())
    return next((line.removeprefix("# ") for line in lines if line.startswith("# ")), "")


def _runs(crate: ROCrate, folder: str, files: Mapping[str, bytes], agent: ContextEntity) -> Iterator[ContextEntity]:
    """A data set and an action for each packed run."""
    packs = packed.documents(files.get(f"{folder}/{packed.RUNS}", b'{"$shared": {}}').decode())
    for run, told in packs.items():
        own = f"#{folder.rsplit('/', 1)[-1]}-{run}"
        part = {"isPartOf": {"@id": f"{folder}/{packed.RUNS}"}, "description": _words(told["run"])}
        data = crate.add(_entity(crate, f"{own}-data", "Dataset", name=run, **part))
        asked = told.get("request", {}).get("notebook")
        notebook = crate.dereference(f"notebooks/{asked}") or crate.dereference(SOFTWARE)
        action = crate.add(
            _entity(
                crate, own, "CreateAction", name=f"Measurement {run}",
                startTime=told["status"].get("started", ""), endTime=told["status"].get("updated", ""),
                description=f"Measured by code of digest {told['provenance'].get('digest')}, commit "
                f"{told['provenance'].get('commit') or 'not known'}",
                actionStatus="http://schema.org/CompletedActionStatus",
            )
        )  # fmt: skip
        action["instrument"], action["result"], action["agent"] = notebook, data, agent
        yield action


def _words(run: Mapping[str, Any]) -> str:
    config = run.get("config", {})
    return (
        f"One training run: {config.get('workload')} on {config.get('dataset')}, {config.get('parallel')} on "
        f"{run.get('world_size')} ranks of {run.get('nodes')} nodes, {config.get('precision')}, global batch "
        f"{run.get('global_batch')}, on {run.get('device')}"
    )
