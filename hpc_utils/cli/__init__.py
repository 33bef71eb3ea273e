"""`hpc`: the commands that compose the rooms. Notebooks call the same functions.

One module holds the commands of one subject. It is imported only when one of its commands is called, so that `hpc --help`
stays fast; `common` holds the options and helpers that several modules share.

The room is larger than its budget because 39 commands have more than 100 options and arguments, each declared once with its help.
"""

from __future__ import annotations

import errno
import gc
import importlib
import keyword

import click

from hpc_utils import signals

# {section: {command: (its module, its line in `hpc --help`)}}
SECTIONS = {
    "Run": {
        "run": ("run", "Execute a notebook on every rank."),
        "params": ("run", "List every parameter of a run."),
        "doctor": ("doctor", "Check whether this machine, or a cluster, is ready to measure."),
        "bench": ("doctor", "Measure links, storage, or the compute time of a model."),
        "data": ("run", "List, fetch and verify data sets."),
    },
    "Study": {
        "study": ("study", "Plan and run studies on this machine."),
        "collect": ("study", "Join all complete runs into CSV files."),
        "report": ("study", "Write chapters, numbers and runs as one HTML page."),
        "explain": ("study", "Find what limits a run from its profiles."),
        "import": ("study", "Read results of other people and check them."),
    },
    "Cluster": {
        "cluster": ("cluster", "Run a Slurm cluster on this machine; draft cluster files."),
        "plan": ("jobs", "Predict time and cost of a study on a cluster."),
        "submit": ("jobs", "Submit the missing runs of a study to Slurm."),
        "status": ("jobs", "Show submitted runs, and the remedy for failed ones."),
        "logs": ("jobs", "Show the logs of a run, a job, or the failed runs of a study."),
        "cancel": ("jobs", "Cancel jobs; their runs can be resumed."),
        "retry": ("jobs", "Submit failed runs again."),
        "pull": ("jobs", "Fetch complete runs from a cluster."),
        "bundle": ("publish", "Pack code, wheels and data for a machine without network."),
    },
    "Publish": {
        "chapter": ("publish", "Execute a chapter on a result set."),
        "paper": ("publish", "Build the paper, the proposal and the slides."),
        "verify": ("publish", "Repeat a run and compare its results."),
        "export": ("publish", "Write one figure as PDF, SVG, PNG and its data."),
        "release": ("publish", "Pack this commit, its results and its documents for an archive."),
    },
}
HIDDEN = {"point": ("run", "Execute one point of a submission (array jobs call it).")}
COMMANDS = {name: entry for section in (*SECTIONS.values(), HIDDEN) for name, entry in section.items()}

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}

_PERMISSION = "choose another folder, or change its permissions"
_FULL = "free some space (`df -h`, `quota -s`) and repeat the command"
_EXISTS = "remove or rename it, or choose another path"
REMEDIES = {  # of file system errors that the user can solve
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.EROFS: _PERMISSION,
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EEXIST: _EXISTS,
    errno.EISDIR: _EXISTS,
    errno.ENOTDIR: "a parent folder is a file: remove or rename it, or choose another path",
}


class LazyGroup(click.Group):
    """Imports a command when it is called, and reports expected errors in one message without a traceback.

    Such an exception has an `exit_code`: 2 invalid request, 3 locked by another process, 1 failed; 75 or 143 stopped by
    a signal.
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
            click.secho("interrupted; all processes have ended", fg="yellow", err=True)
            context.exit(130)
        except Exception as error:
            code, message = getattr(error, "exit_code", None), str(error)
            if type(error).__name__ == "PapermillExecutionError":
                code = 1
            elif isinstance(error, OSError) and error.errno in REMEDIES:
                path = error.filename2 or error.filename  # filename2: the target of a copy
                if path or REMEDIES[error.errno] is _FULL:  # without a path it may be about a process
                    code, message = 1, ": ".join(filter(None, [path, error.strerror, REMEDIES[error.errno]]))
            if code is None:
                raise
            click.secho(f"{getattr(error, 'label', 'error')}: ", fg="red", bold=True, nl=False, err=True)
            click.echo(message, err=True)
            context.exit(code)


@click.group(cls=LazyGroup, context_settings=SETTINGS)
@click.version_option(package_name="scaling-compendium")
def main() -> None:
    """Measure distributed training: run notebooks on every rank, collect their records, analyze the study.

    \b
    hpc study run laptop                                      the whole laptop study
    hpc run notebooks/02_ddp.ipynb --nproc 2 -p epochs=1      one run, on two ranks
    hpc params                                                the parameters that -p accepts
    """
    gc.set_threshold(
        100_000
    )  # most objects are created by imports and stay: frequent collection costs a fifth of the time
    signals.remember()  # SIGUSR1 may arrive before the run listens for it
