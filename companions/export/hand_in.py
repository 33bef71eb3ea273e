"""The folder that a course about HPC asks its participants to hand in about a study (`docs/course.md`)."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from hpc_utils import paths, records
from hpc_utils.analyze import points, scaling
from hpc_utils.analyze.profiles.profiled_runs import read_monitor
from hpc_utils.plural import counted
from hpc_utils.provenance.system import markdown_table, system_markdown
from hpc_utils.publish import exports, staleness
from hpc_utils.records import Records, StudyIndex, atomic, identity
from hpc_utils.records.accounting import read_accounting
from hpc_utils.records.fingerprint import portable
from hpc_utils.records.folder import read_json
from hpc_utils.records.identity import task
from hpc_utils.records.study import CLUSTERS, index_folder

from .figures import CannotExport, write_figure

# The columns that the course asks for, in its order, and what they hold.
COLUMNS = {
    "jobid": "Slurm's job, as `sacct` names it; empty: no Slurm job",
    "commit": "git commit of the code that measured",
    "ts": "end of the epoch's training part (UTC); empty: an older version did not record it",
    "epoch": "counted from 1",
    "world_size": "ranks over all nodes",
    "nodes": "machines",
    "global_batch": "samples a step over all ranks",
    "per_gpu_batch": "samples a step on each device",
    "train_top1": "share correct over the epoch's samples, while training",
    "val_top1": "share correct over the test samples, each counted once; empty: not evaluated (`evaluate_every = 1` does)",
    "images_per_sec": "samples of all ranks / time_epoch_s",
    "time_epoch_s": "T: the longest rank's time of the training part, between synchronised ends (s)",
    "dl_time_s": "of it, waiting for and moving batches (s): mean a step over sampled steps and ranks, times the steps",
    "fw_time_s": "likewise gradients cleared, forward pass and loss (s)",
    "bw_time_s": "likewise backward pass, with the all-reduce that overlaps it (s)",
    "comm_time_s": "likewise all-reduce of gradients on rank 0, mostly within bw_time_s (s); empty: one rank",
    "mem_gb": "peak memory of a device over the run (1e9 B), largest rank: allocated on a GPU, resident on a CPU",
    "util_gpu": "mean over the epoch and its GPUs (%), or over all epochs, if one is shorter than the monitor's interval; empty: no GPU, or "
    "no monitor (`monitor_seconds = 0.5`)",
    "eff_strong": "T(1) / (N T(N)) at a fixed global batch, of medians over repeats, or of runs that took turns the mean ratio within a "
    "round; T(1) without a process group if measured",
    "eff_weak": "T_step(1) / T_step(N) at a fixed batch per device, likewise; both empty: on no curve, or not comparable",
    # Further ones, which tell the rows apart
    "run_id": "the run, by which `hpc verify` repeats it",
    "workload": "what was trained",
    "settings": "its options that are not the defaults and have no column",
    "parallel": "none (no process group), ddp, zero1, fsdp, or own (as the workload does it)",
    "precision": "fp32, tf32, bf16 or fp16",
    "repeat": "which repeat of the configuration",
    "dirty": "whether the code differed from the commit",
}
RENAMED = {  # from our records
    "per_gpu_batch": "batch_per_device", "train_top1": "train_accuracy", "val_top1": "test_accuracy",
    "images_per_sec": "throughput", "time_epoch_s": "seconds",
}  # fmt: skip
PER_STEP = {"dl_time_s": "data", "fw_time_s": "forward", "bw_time_s": "backward", "comm_time_s": "comm"}
FILES = {
    "results.csv": "a row for each epoch of each run",
    "run.sh": "the command that measures the study",
    "submit.sbatch": "a copy of {script}",
    "submissions": "of each submission to Slurm: its jobs, the run of each task, the environment",
    "SYSTEM.md": "node types, modules, driver, versions, commits, jobs",
    "sacct.csv": "Slurm's accounting of the jobs and their steps",
    "figures": "the figures of the study's chapters, each with its data and its source",
}
RUN = """#!/bin/bash
# {title}
# Measures the study {study} again, in the root of the clone; complete runs are not repeated.
set -euo pipefail
export PATH="$PWD/.venv/bin:$PATH"
{commands}
"""
SYSTEM = """
A tree is clean if `hpc_utils`, `companions` and `notebooks` are as committed. Other files of the study may differ from the commit, or
not be in it; this folder has them: {copied}.
"""
REPRODUCE = """# How to reproduce: {title}

{about}

{count} of the study `{study}`, measured from {first} to {last}: {tasks}, in {precisions}, on {ranks}.

{files}
## Repeat it

```
git clone REPOSITORY scaling-compendium && cd scaling-compendium
git checkout {commit}
python3 -m venv .venv && .venv/bin/pip install -c env/constraints.txt -e .
source .venv/bin/activate
bash FOLDER/run.sh
{enter}hpc export --course {study}
```

FOLDER is a copy of this one outside the clone, which may lack it at that commit. `env/constraints.txt` pins the versions; `SYSTEM.md` has
those that measured. The last command (of a newer commit, if that one lacks it) writes such a folder from the new runs, below
`results/course`. With the original runs at hand, `hpc verify {run}` repeats one and compares the two.

## Notes

{notes}

## Columns of results.csv

{columns}"""


def write_folder(study: str, results: Path, output: Path) -> list[str]:
    """Write the folder `output` about `study` of the set `results`; returns what its reader should know, a line each.

    Raises:
        UnknownStudy: it was never run with these results. CannotExport: no run is complete, the study was imported, or a figure was
            changed since.
    """
    index = records.read_study(study, results)
    study_records = records.load(results, study=study)
    if study_records.runs.empty:
        raise CannotExport(f"no run of {study} in {results} is complete: `hpc status` and `hpc collect` say why")
    if imported := identity.imported_sets(study_records.runs.hardware_id):
        raise CannotExport(
            f"{', '.join(imported)} was imported, and nothing here repeats it: hand in a study that was measured here"
        )
    runs = study_records.runs.sort_values("started")
    notes = []
    if missing := ", ".join(study_records.refused | study_records.unfinished):
        notes += [f"Of {counted(len(index.run_ids), 'run')} these are not complete, or refused: {missing}."]
    notes += (f"{line}." for line in records.by_other_code(study_records, results, study))
    notes += _write_figures(results, study, index, study_records, output / "figures")
    notes += _write_accounting(results, runs, output)
    rows = epoch_table(results, study_records)
    if empty := [name for name in rows if rows[name].isna().all()]:
        notes += [f"Not measured, so empty in every row: {', '.join(empty)}."]
    atomic.write_text(output / "results.csv", rows.to_csv(index=False, lineterminator="\n"))
    origins = [read_json(results / path / "provenance.json") for path in runs.path]
    plan_folder = index_folder(study, results)  # what the study was planned from
    copied = [path.relative_to(plan_folder).as_posix() for path in sorted(plan_folder.rglob("*")) if path.is_file()]
    if copied:
        shutil.copytree(plan_folder, output, dirs_exist_ok=True)
    atomic.write_text(
        output / "SYSTEM.md", system_markdown(origins) + SYSTEM.format(copied=", ".join(copied) or "none")
    )
    script = _write_scripts(results, study, index, runs, output, copied)
    rows = [(f"`{name}`", text.format(script=script)) for name, text in FILES.items() if (output / name).exists()]
    rows += [
        (f"`{name}`", "of the study itself; `run.sh` uses it, a job by hand with `PYTHONPATH=FOLDER`")
        for name in copied
    ]
    notes = list(dict.fromkeys(notes))  # several chapters may have the same
    text = REPRODUCE.format(
        title=index.title or study,
        about=index.about.strip(),
        study=study,
        count=counted(len(runs), "run"),
        first=runs.started.iloc[0][:10],
        last=runs.started.iloc[-1][:10],
        tasks=_listed(map(task, runs.to_dict("records"))),
        precisions=_listed(runs.precision),
        ranks=_listed(runs.world_size) + (" rank" if set(runs.world_size) == {1} else " ranks"),
        files="\n".join(markdown_table(("file", "content"), rows)),
        commit=next(iter(runs.commit.dropna()[::-1]), "COMMIT"),
        enter="cd FOLDER && " if copied else "",
        run=runs.run_id.iloc[0],
        notes="\n".join(f"- {note}" for note in notes) or "None.",
        columns="\n".join(markdown_table(("column", "content"), COLUMNS.items())),
    )
    atomic.write_text(output / "reproduce.md", text)
    return notes


def _listed(values: Iterable[object]) -> str:
    """The different values, sorted."""
    return ", ".join(map(str, sorted(set(values))))


def epoch_table(results: Path, study_records: Records) -> pd.DataFrame:
    """A row for each epoch of each run, by the runs' starts, with `COLUMNS`; NaN or None: not measured."""
    runs = study_records.runs.assign(mem_gb=points.memory(study_records.runs).peak_bytes / 1e9)
    runs["jobid"] = [_job(results / path) for path in runs.path]
    curves = scaling.headline(scaling.efficiency(runs)).explode("runs")
    for kind in ("strong", "weak"):
        efficiency = curves[curves.kind == kind].drop_duplicates("runs").set_index("runs").efficiency
        runs[f"eff_{kind}"] = runs.run_id.map(efficiency).astype(float)
    run_columns = ["run_id", *runs.columns.difference(study_records.epochs.columns)]
    rows = study_records.epochs.merge(runs[run_columns], on="run_id").sort_values(["started", "run_id", "epoch"])
    ended = pd.to_numeric(rows.ended)
    begun = points.training_begun(rows)
    rows["ts"] = pd.to_datetime(ended, unit="s", utc=True).dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    for name, phase in PER_STEP.items():
        rows[name] = pd.to_numeric(rows[f"{phase}_seconds"]) * rows.steps
    rows["util_gpu"] = float("nan")
    for run, epochs in rows[rows.device != "cpu"].groupby("run_id"):
        parts = zip(begun[epochs.index], ended[epochs.index], strict=True)
        rows.loc[epochs.index, "util_gpu"] = list(_utilisation(read_monitor(results, run), parts))
    return rows.assign(**{name: rows[column] for name, column in RENAMED.items()})[list(COLUMNS)]


def _job(run: Path) -> str | None:
    """The job of a run as `sacct` names it, a task of an array as `12_3`; None if there was none."""
    job = (read_json(run / "provenance.json") or {}).get("job") or {}
    array = job.get("array_job_id")
    return f"{array}_{job['array_task_id']}" if array else job.get("id")


def _utilisation(log: pd.DataFrame, parts: Iterable[tuple[float, float]]) -> Iterator[float]:
    """The mean utilisation (%) of the GPUs in a monitor's `log` in each part of its time (s since the epoch); NaN: not monitored."""
    gpus = log[log.device.astype(str).str.startswith("cuda")]
    samples = [gpus.utilization_percent[gpus.time.between(*part)] for part in parts]
    mean = pd.concat(samples).mean()
    return (part.mean() if len(part) else mean for part in samples)


def _write_accounting(results: Path, runs: pd.DataFrame, output: Path) -> Iterator[str]:
    """Write sacct.csv; yields why there is none."""
    accounting = read_accounting(results, runs.run_id)
    if accounting.empty:
        without_slurm = runs.job_id.isna().all()
        yield f"No `sacct.csv`: {'no run was a Slurm job' if without_slurm else 'none is archived with the runs'}."
    else:
        jobs = accounting.drop(columns="run_id").drop_duplicates()
        atomic.write_text(output / "sacct.csv", jobs.to_csv(index=False, lineterminator="\n"))
        if lacking := set(runs.run_id[runs.job_id.notna()]).difference(accounting.run_id):
            yield f"`sacct.csv` lacks the jobs of {counted(len(lacking), 'run')}, which were not archived: {', '.join(sorted(lacking))}."


def _write_figures(
    results: Path, study: str, index: StudyIndex, study_records: Records, output: Path
) -> Iterator[str]:
    """Write the figures of the study's chapters; yields what is stale."""
    chapters = {chapter.notebook for chapter in index.chapters}
    run_ids = set(study_records.runs.run_id)
    exported = exports.read_exports(results)
    pages = set()
    for _, figure in sorted(exported.figures.items()):
        page = exported.pages[figure.page]
        study_page = page["study"] == study
        shared_page = not page["study"] and page["notebook"] in chapters and run_ids.intersection(figure.runs)
        if study_page or shared_page:
            pages.add(figure.page)
            write_figure(exported, figure, output, ["pdf"])
    all_records = records.load(results)
    yield from (f"{fault}." for page in sorted(pages) for fault in staleness.page_faults(exported, page, all_records))
    if not pages:
        yield f"No figures: `hpc report {study}` draws them."


def _write_scripts(
    results: Path, study: str, index: StudyIndex, runs: pd.DataFrame, output: Path, copied: list[str]
) -> str:
    """Write run.sh, which uses the files `copied`, submit.sbatch and what launch wrote for Slurm; returns what submit.sbatch is a copy
    of."""
    name = study.removesuffix(f"-{runs.hardware_id.iloc[-1]}")
    command = index.command
    if not command:  # an index of an older version
        ran_in_jobs = runs.job_id.notna().any()
        command = f'hpc submit {name} --cluster "${{1:?which cluster}}"' if ran_in_jobs else f"hpc study run {name}"
    submitted = command.startswith("hpc submit")
    commands = [f"hpc data fetch {dataset}" for dataset in sorted(set(runs.dataset.dropna()) - {"digits", ""})]
    if copied:
        commands.append('cd "$(dirname "$0")"  # the files of the study are here')
        command = shlex.join(_of_folder(shlex.split(command), copied))
    commands += [*index.setup, command + " --wait" * submitted]
    text = RUN.format(title=index.title or study, study=study, commands="\n".join(commands))
    atomic.write_text(output / "run.sh", portable(text))
    script = paths.jobs() / ("sweep.sbatch" if submitted else "train.sbatch")
    shutil.copyfile(script, output / "submit.sbatch")
    for file in sorted((results / "submissions").glob(f"*-{study}/*.*")):
        atomic.write_text(output / "submissions" / file.parent.name / file.name, portable(file.read_text()))
    role = "of which each task ran one point" if submitted else "which makes one run; this study was not submitted"
    return f"`jobs/{script.name}`, {role}"


def _of_folder(words: list[str], copied: list[str]) -> Iterator[str]:
    """A study's command with the copies of its study file and cluster file."""
    for before, word in zip(["", *words], words, strict=False):
        kind = {"run": "", "submit": "", "--cluster": f"{CLUSTERS}/"}.get(before)
        copy = f"{kind}{Path(word).name.removesuffix('.toml')}.toml"
        yield f"./{copy}" if kind is not None and copy in copied else word
