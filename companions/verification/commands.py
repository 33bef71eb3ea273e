"""`hpc verify`, which the core's command line finds here."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from hpc_utils import paths, provenance
from hpc_utils.cli.common import POSITIVE, SET, Finite, result_set, results_option, tell
from hpc_utils.plural import counted


def register(main: click.Group) -> None:
    """Add `hpc verify`."""
    main.add_command(verify)


@click.command()
@click.argument("run")
@results_option(f"The set of RUN; default: results/ or any committed set. {SET}")
@click.option("--repeats", default=3, type=POSITIVE, help="Number of new runs.")
@click.option(
    "--tolerance", default=0.1, type=Finite(10), help="For times and memory: 0.1 accepts a factor of 1.1 either way."
)  # fmt: skip
@click.option("--against", metavar="SET", help="Run nothing: compare with the runs of the same configuration in SET.")
@click.option("--notebook", type=click.Path(path_type=Path), help="What RUN executed, if it is not in notebooks/.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify(run, folder, repeats, tolerance, against, notebook, as_json):
    """Repeat RUN and compare each of its results.

    RUN is the id of a run, its last part, or its folder, in your results or a committed set. It is trained again with the
    same seed, into results/verify/RUN; the comparison is kept as results/verify/RUN.json. RUN itself is only read.

    Samples and steps must be equal; losses and accuracies bit-equal, or closer than those of another seed. Throughput, step
    time and memory agree if the 95 % interval of now / then lies within the tolerance, differ if it lies outside, and are
    inconclusive otherwise. On other hardware times are shown and not compared.

    Exit code: 0 agree, 1 differ, 4 inconclusive, 2 RUN cannot be repeated here.
    """
    from hpc_utils import records
    from hpc_utils.records import atomic, find
    from hpc_utils.records.folder import read_json
    from hpc_utils.records.study import Targets

    from . import account, comparison, rerun

    path = find.find_run(run, folder)
    original_set = path.parent.parent
    comparisons = paths.results() / "verify"
    original_records = records.load(original_set)
    originals = original_records.runs[original_records.runs.run_id == path.name]
    if originals.empty:
        state = original_records.unfinished.get(path.name, "absent")
        raise rerun.CannotRerun(
            f"{path.name}: {original_records.refused.get(path.name) or f'not complete ({state})'}"
        )
    rerun.unchanged(path)
    original = originals.iloc[0]
    if against:
        new = result_set(against)
        if new.samefile(original_set):
            raise rerun.CannotRerun(f"{against} is the set of the run itself: every run agrees with itself")
        new_records = records.load(new)
        repeated = comparison.alike(new_records.runs, original, one_state=False)
        if copied := rerun.copies(original_records.runs, repeated):
            raise rerun.CannotRerun(
                f"{against} holds copies of runs of {find.folder_name(original_set)}, such as {copied[0]}: "
                "compare with new runs"
            )
        if repeated.empty:
            raise rerun.CannotRerun(f"{new} holds no complete run of {path.name}'s configuration")
    else:
        new = comparisons / path.name
        ids = rerun.execute(path, repeats, new, notebook=notebook, say=tell)
        new_records = records.load(new)
        repeated = new_records.runs[new_records.runs.run_id.isin(ids)]
    before = comparison.alike(original_records.runs, original, one_state=True)
    study = find.study_of(path)
    judgements = comparison.compare(
        path.name,
        comparison.Side.of(before, original_records.epochs),
        comparison.Side.of(repeated, new_records.epochs),
        tolerance=tolerance,
        margins=study.targets if study else Targets(),
    )
    verdict = comparison.overall(judgements)
    then = {
        "results": find.folder_name(original_set),
        "runs": before.run_id.tolist(),
        "provenance": read_json(path / "provenance.json"),
    }
    now = {
        "results": find.folder_name(new),
        "runs": repeated.run_id.tolist(),
        "provenance": read_json(new / "runs" / repeated.run_id.iloc[0] / "provenance.json"),
    }
    differences = provenance.differences(then["provenance"], now["provenance"])
    written = datetime.now(UTC).isoformat(timespec="seconds")
    record = account.record(
        path.name, judgements, differences, verdict, written=written, tolerance=tolerance, then=then, now=now
    )
    atomic.write_json(comparisons / f"{path.name}.json", record)
    if as_json:
        click.echo(json.dumps(record, indent=1, allow_nan=False))
    else:
        origin = f"{path.name} of {then['results']}, {original.started[:10]}"
        title = f"{origin}, beside {counted(len(repeated), 'new run')}"
        click.echo("\n".join(account.lines(title, judgements, differences, verdict)))
        tell(f"comparison: {comparisons / f'{path.name}.json'}")
    sys.exit({comparison.AGREE: 0, comparison.DIFFER: 1}.get(verdict, 4))
