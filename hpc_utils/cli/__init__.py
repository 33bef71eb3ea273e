"""`hpc`: the command that composes the rooms. Notebooks call the same functions.

One file a group of commands; a group's file is read when one of its commands is asked for, and a command imports what
it needs when it runs, so that `hpc --help` stays quick.
"""

from __future__ import annotations

import gc
import importlib
import keyword

import click

from hpc_utils import signals

from . import disk

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

# {section: {command: (its file, the line that `hpc --help` says about it without reading that file)}}
SECTIONS = {
    "Run": {
        "run": ("run", "Execute a notebook on every rank."),
        "params": ("run", "List every parameter of a run."),
        "doctor": ("doctor", "Is this machine, or this cluster, ready to measure?"),
        "bench": ("bench", "How fast are the links, the storage, and a model's computing?"),
        "data": ("data", "Data sets: fetch once, train from everywhere."),
    },
    "Study": {
        "study": ("study", "Studies: matrices of runs, on this machine."),
        "collect": ("study", "Join all complete runs into CSV."),
        "report": ("study", "Chapters, numbers and runs as one page that opens from disk."),
        "explain": ("explain", "What limits a run: from its profiles to a verdict."),
        "import": ("foreign", "Read other people's results, checked as ours are."),
    },
    "Cluster": {
        "cluster": ("cluster", "A real Slurm on this machine, to rehearse; drafts of cluster files."),
        "plan": ("plan", "What a study will take on a cluster, before anything runs."),
        "submit": ("jobs", "Hand what is missing of a study to Slurm."),
        "status": ("jobs", "How submitted runs stand, and what to do about those that failed."),
        "logs": ("jobs", "The logs of a run, a job, or a study's failures."),
        "cancel": ("jobs", "End jobs; their runs can be resumed."),
        "retry": ("jobs", "Submit again what failed."),
        "pull": ("jobs", "Fetch complete runs from a cluster."),
        "bundle": ("bundle", "Pack code, wheels and data for a machine without network."),
    },
    "Publish": {
        "chapter": ("chapter", "Execute a chapter anew on a result set: figures, tables, values."),
        "paper": ("paper", "Build the paper, the proposal and the slides, every number traced."),
        "verify": ("verify", "Make a run again: do its numbers agree?"),
        "export": ("export", "One figure as PDF, SVG, PNG and its data."),
        "release": ("release", "Pack this commit, its results and its texts for an archive."),
    },
}
HIDDEN = {"point": ("run", "Execute one point of a submission (array jobs call it).")}
COMMANDS = {name: told for section in (*SECTIONS.values(), HIDDEN) for name, told in section.items()}


class Rooms(click.Group):
    """Finds commands by name, and turns the errors a user can mend into one clear message.

    Such an error says its exit code: 2 refused, 3 somebody else is at it, 1 it ran and failed; 75 or 143 a signal
    stopped it in order.
    """

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"hpc_utils.cli.{COMMANDS[name][0]}")
        return getattr(module, f"{name}_" if keyword.iskeyword(name) else name)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))  # the same column in all sections
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, (_, line) in commands.items()])

    def invoke(self, context: click.Context):
        try:
            return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            click.secho("interrupted; no process is left", fg="yellow", err=True)
            context.exit(130)
        except Exception as error:
            code = 1 if type(error).__name__ == "PapermillExecutionError" else getattr(error, "exit_code", None)
            told = str(error)
            if code is None and isinstance(error, OSError) and (mendable := disk.said(error)):
                code, told = 1, mendable
            if code is None:
                raise
            click.secho(f"{getattr(error, 'label', 'error')}: ", fg="red", bold=True, nl=False, err=True)
            click.echo(told, err=True)
            context.exit(code)


@click.group(cls=Rooms, context_settings=CONTEXT)
@click.version_option(package_name="scaling-compendium")
def main() -> None:
    """Measure distributed training: run notebooks on every rank, collect their records, draw the study.

    \b
    hpc study run laptop                                      the whole laptop study
    hpc run notebooks/02_ddp.ipynb --nproc 2 -p epochs=1      one run, on two ranks
    hpc params                                                what -p can say
    """
    gc.set_threshold(
        100_000
    )  # most objects here are made by imports and stay: collecting often costs a fifth of the time
    signals.remember()  # a run that begins shortly shall hear of it
