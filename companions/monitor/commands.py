"""`hpc monitor`, which the core's command line finds here."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from hpc_utils.cli.jobs import entry_names, present_entries

EVERY = 2  # s between two looks at the samples
# The columns of a monitor that are shown, with what their numbers are divided by
SAMPLED = {
    "busy (%)": ("utilization_percent", 1),
    "memory (GiB)": ("memory_used_bytes", 2**30),
    "of (GiB)": ("memory_total_bytes", 2**30),
    "power (W)": ("power_watts", 1),
    "received (MB/s)": ("network_received_bytes", 1e6),
    "sent (MB/s)": ("network_sent_bytes", 1e6),
    "RDMA received (MB/s)": ("rdma_received_bytes", 1e6),
    "RDMA sent (MB/s)": ("rdma_sent_bytes", 1e6),
}


def register(main: click.Group) -> None:
    """Add `hpc monitor`."""
    main.add_command(monitor)


@click.command()
@click.argument("job", metavar="[RUN|JOB]", default="")
def monitor(job):
    """Show devices, memory, power and network of a running run.

    Each line is a host's processors (cpu), a GPU, or the processes of a rank, by the last sample of the run's monitors: start
    the run with `-p monitor_seconds=SECONDS`. Without an argument it is the only run that is running. If the output is no
    terminal, the last sample is printed once; exit code 1 if there is none.
    """
    from hpc_utils.launch.status import progress
    from hpc_utils.records.folder import state

    from . import live

    run = _running(job)
    once = not sys.stdout.isatty()
    while True:
        samples = live.latest(run)
        if not once:
            click.clear()
        click.echo(f"{run.name}: {progress(run)[0]}")
        if samples.empty:
            click.echo(
                "no sample: training has not begun, or the run was started without `-p monitor_seconds=SECONDS`"
            )
        else:
            click.echo(f"sampled {time.time() - samples.time.max():.0f} s ago")
            samples = samples.fillna({"memory_used_bytes": samples.rss_bytes})
            shown = {label: samples[name] / unit for label, (name, unit) in SAMPLED.items()}
            table = samples[["host", "device"]].assign(**shown).dropna(axis="columns", how="all")
            click.echo(table.to_string(index=False, na_rep="", float_format="{:.1f}".format))
        if once:
            sys.exit(1 if samples.empty else 0)
        time.sleep(EVERY)
        if (run_state := state(run)) != "running":
            click.echo(f"{run.name}: {run_state}")
            return


def _running(job: str) -> Path:
    """The folder of the running run of that name, or of the one that this job makes; "": of the only one."""
    from . import live

    running = live.running()
    matching_runs = [run for run in running if job in ("", run.name)]
    if job and not matching_runs:
        run_ids = {entry.run_id for entry in present_entries() if job in entry_names(entry)}
        matching_runs = [run for run in running if run.name in run_ids]
    if not matching_runs:
        raise click.UsageError(f"no run{job and f' {job}'} is running")
    if len(matching_runs) > 1:
        raise click.UsageError(f"several runs are running, give one: {', '.join(run.name for run in matching_runs)}")
    return matching_runs[0]
