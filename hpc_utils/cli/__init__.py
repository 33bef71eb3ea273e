"""`hpc`: the commands that compose the rooms. Notebooks call the same functions.

One module holds the commands of one subject; a command imports what it needs when it is called, so that `hpc --help` stays
fast. `common` holds the options and helpers that several modules share. A companion's `commands.py` adds commands or options by its
function `register(main)`.

The room is larger than its budget because 40 commands have more than 100 options and arguments, each declared once with its help.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import importlib.util
import pkgutil
from pathlib import Path

import click

from hpc_utils import paths, signals

from . import cluster, common, doctor, jobs, run, study

SECTIONS = {
    "Run": (run.run, run.discard, run.params, doctor.doctor, doctor.diagnose, doctor.bench, run.data),
    "Study": (study.study, study.collect, study.report, study.chapter, study.explain),
    "Cluster": (
        cluster.cluster, jobs.plan, jobs.submit, jobs.status, jobs.logs, jobs.cancel, jobs.retry, jobs.pull,
    ),
}  # fmt: skip
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}
FULL = {errno.ENOSPC, errno.EDQUOT}
# File system errors that the user can solve
OF_FILES = FULL | {errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.EISDIR, errno.ENOTDIR}


class Commands(click.Group):
    """Lists the commands in sections, and reports expected errors in one message without a traceback.

    Such an exception has an `exit_code`: 2 invalid request, 3 locked by another process, 1 failed; 75 or 143 stopped by
    a signal.
    """

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        listed = {command for commands in SECTIONS.values() for command in commands}
        others = [command for command in self.commands.values() if command not in listed and not command.hidden]
        for title, commands in {**SECTIONS, **({"Companions": others} if others else {})}.items():
            with formatter.section(title):
                formatter.write_dl([(f"{one.name:8}", one.get_short_help_str(limit=90)) for one in commands])

    def invoke(self, context: click.Context):
        try:
            return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            click.secho("interrupted: the same command goes on", fg="yellow", err=True)
            context.exit(130)
        except Exception as error:
            code, message = getattr(error, "exit_code", None), str(error)
            if type(error).__name__ == "PapermillExecutionError":
                code = 1
            elif isinstance(error, OSError) and error.errno in OF_FILES and (error.filename or error.errno in FULL):
                path = error.filename2 or error.filename  # filename2: the target of a copy
                code, message = 1, f"{path}: {error.strerror}" if path else error.strerror
            if code is None:
                raise
            click.secho(f"{getattr(error, 'label', 'error')}: ", fg="red", bold=True, nl=False, err=True)
            click.echo(message, err=True)
            context.exit(code)


@click.group(cls=Commands, context_settings=SETTINGS)
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
    with contextlib.suppress(OSError):  # the folder was deleted, or one above it cannot be read
        folder = Path.cwd()
        clone = next(
            (place for place in (folder, *folder.parents) if (place / "hpc_utils/workspace.py").is_file()), None
        )
        if clone and clone != paths.root():
            common.warn(
                f"this is the hpc of {paths.root()}, whose notebooks and results it uses, not those of {clone}"
            )


for _command in (*(one for commands in SECTIONS.values() for one in commands), run.point):
    main.add_command(_command)


def register_companions(group: click.Group) -> None:
    """Let each companion that has a module `commands` add its commands and options to `group`."""
    try:
        companions = importlib.import_module("companions")
    except ModuleNotFoundError:  # an installation without them
        return
    for package in pkgutil.iter_modules(companions.__path__, "companions."):
        if package.ispkg and importlib.util.find_spec(f"{package.name}.commands"):
            importlib.import_module(f"{package.name}.commands").register(group)


register_companions(main)
