"""`hpc verify`: is a run's result found again?"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from .sets import SETS, result_set

CODES = {"agree": 0, "differ": 1, "cannot be told": 4}


@click.command()
@click.argument("run")
@click.option(
    "--results",
    "origin",
    metavar="SET",
    help=f"Where RUN lies; by default in your results or any committed set. {SETS}",
)
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(1), help="How often it is made again.")
@click.option(
    "--tolerance", default=0.1, show_default=True, type=click.FloatRange(0, min_open=True),
    help="Within which times and memory count as equal: 0.1 is a factor of 1.1, either way.",
)  # fmt: skip
@click.option("--against", metavar="SET", help="Run nothing: compare with the runs of that configuration in SET.")
@click.option("--notebook", type=click.Path(path_type=Path), help="What RUN executed, if it is none of notebooks/.")
@click.option("--json", "as_json", is_flag=True, help="One object and nothing else.")
def verify(
    run: str,
    origin: str | None,
    repeats: int,
    tolerance: float,
    against: str | None,
    notebook: Path | None,
    as_json: bool,
) -> None:
    """Make RUN again, and say of each of its numbers whether they agree with those that it had.

    RUN is a run's id, its last part, or its folder: of your results, or of a committed set. It is trained again with the
    same seed, into results/verify/RUN, and the account is kept as results/verify/RUN.json; RUN itself is only read.

    Samples and steps must be equal; losses and accuracies bit-equal, or nearer than another seed's. Throughput, step
    time and memory agree if the whole 95 % interval of now / then lies within the tolerance, differ if it lies outside,
    and otherwise cannot be told. On other hardware times are shown, and not judged.

    Exit code: 0 agree, 1 differ, 4 cannot be told, 2 RUN cannot be made again here.
    """
    from hpc_utils import paths, provenance, records
    from hpc_utils.analyze import reproduction
    from hpc_utils.launch import rerun
    from hpc_utils.publish import reproduction as words
    from hpc_utils.records import atomic
    from hpc_utils.records.folder import read_json
    from hpc_utils.records.study import Targets

    if not reproduction.is_tolerance(tolerance):
        raise click.BadParameter(f"{tolerance:g} is no positive number", param_hint="--tolerance")
    folder = rerun.find(run, result_set(origin) if origin else None)
    own, kept = folder.parent.parent, paths.results() / "verify"
    then = records.load(own)
    if folder.name not in set(then.runs.run_id):
        why = then.refused.get(folder.name) or f"not complete ({then.unfinished.get(folder.name, 'absent')})"
        raise rerun.CannotRerun(f"{folder.name}: {why}")
    rerun.unchanged(folder)
    chosen = then.runs[then.runs.run_id == folder.name].iloc[0]
    if against:
        new = result_set(against)
        if new.samefile(own):
            raise rerun.CannotRerun(f"{against} is the set of the run itself: every run agrees with itself")
        now = records.load(new)
        made = reproduction.alike(now.runs, chosen, one_state=False)
        if copied := rerun.copies(own, then.runs, new, made):
            raise rerun.CannotRerun(
                f"{against} holds copies of runs of {rerun.shown(own)} ({copied[0]} for one), which agree with themselves: "
                "compare with runs that were made again"
            )
        if made.empty:
            raise rerun.CannotRerun(f"{new} holds no complete run of {folder.name}'s configuration")
    else:
        new = kept / folder.name
        ids = rerun.execute(folder, repeats, new, notebook=notebook, say=lambda line: click.echo(line, err=True))
        now = records.load(new)
        made = now.runs[now.runs.run_id.isin(ids)]
    before = reproduction.alike(then.runs, chosen, one_state=True)
    judgements = reproduction.compare(
        folder.name,
        reproduction.Side.of(before, then.epochs),
        reproduction.Side.of(made, now.epochs),
        tolerance=tolerance,
        margins=own_study.targets if (own_study := rerun.study_of(folder)) else Targets(),
    )
    verdict = reproduction.overall(judgements)
    origins = [
        read_json(folder / "provenance.json"),
        read_json(new / "runs" / made.run_id.iloc[0] / "provenance.json"),
    ]
    apart = provenance.differences(*origins)
    sides = {
        side: {"results": rerun.shown(where), "runs": frame.run_id.tolist(), "provenance": origin}
        for side, where, frame, origin in zip(("then", "now"), (own, new), (before, made), origins, strict=True)
    }
    written = datetime.now(UTC).isoformat(timespec="seconds")
    account = words.record(folder.name, judgements, apart, verdict, written=written, tolerance=tolerance, **sides)
    atomic.write_json(kept / f"{folder.name}.json", account)
    if as_json:
        click.echo(json.dumps(account, indent=1, allow_nan=False))
    else:
        head = f"{folder.name} of {rerun.shown(own)}, {chosen.started[:10]}, beside {len(made)} made again"
        click.echo("\n".join(words.lines(head, judgements, apart, verdict)))
        click.echo(f"account: {kept / f'{folder.name}.json'}", err=True)
    sys.exit(CODES[verdict])
