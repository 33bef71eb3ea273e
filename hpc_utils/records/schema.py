"""The record schema: every column of every table, with unit and meaning. `results/README.md` is written from it."""

from __future__ import annotations

from typing import NamedTuple

VERSION = 1
BEGIN, END = "<!-- written by `make docs` from hpc_utils/records/schema.py -->", "<!-- end -->"


class Column(NamedTuple):
    """One column; `unit` is empty for text, flags and pure numbers."""

    name: str
    unit: str
    meaning: str


EPOCHS = (
    Column("epoch", "", "counted from 1"),
    Column(
        "restarts",
        "",
        "how often its training part was continued from a checkpoint: then it is whole, but no clean timing",
    ),
    Column("steps", "step", "optimizer steps in the training part"),
    Column("samples", "sample", "global samples trained on: the sum of what each rank counted itself"),
    Column("padded_samples", "sample", "of these, repeats that only fill up a batch (ours never pad: 0)"),
    Column("dropped_samples", "sample", "of the data set, left out because they do not fill a global batch"),
    Column("seconds", "s", "T: the longest rank's wall time of the training part, between synchronised ends"),
    Column("throughput", "sample/s", "samples / seconds"),
    Column("step_mean", "s", "mean step time over all ranks"),
    Column("step_p50", "s", "median step time over all ranks"),
    Column("step_p95", "s", "95th percentile of step time over all ranks"),
    Column("step_p99", "s", "99th percentile of step time over all ranks"),
    Column("data_seconds", "s", "per step, mean over sampled steps and ranks: waiting for and moving the batch"),
    Column("forward_seconds", "s", "per step: gradients cleared, forward pass and loss"),
    Column("backward_seconds", "s", "per step: backward pass, all-reduce that overlaps it included"),
    Column("optimizer_seconds", "s", "per step: loss scaler, optimizer and the training metrics"),
    Column(
        "comm_seconds",
        "s",
        "per step: gradient all-reduce, rank 0's mean so far by DDP's own counter, warm-up included",
    ),
    Column("overlap_seconds", "s", "of comm_seconds, the part hidden behind computation, by DDP's own counter"),
    Column("eval_seconds", "s", "evaluation after the epoch; not part of T"),
    Column(
        "checkpoint_seconds", "s", "pauses of training for checkpoints, or for the end of a profile; not part of T"
    ),
    Column("energy_joules", "J", "of all devices during T; empty if any has no readable counter"),
    Column("lr", "", "learning rate at the epoch's last step"),
    Column("train_loss", "", "mean over the epoch's samples and ranks, while training"),
    Column("train_accuracy", "", "share correct over the epoch's samples and ranks, while training"),
    Column("test_loss", "", "mean over every evaluation sample exactly once"),
    Column("test_accuracy", "", "share correct over every evaluation sample exactly once"),
)

STEPS = (
    Column("rank", "", "global rank"),
    Column("epoch", "", "counted from 1"),
    Column("step", "", "counted from 1 within the epoch"),
    Column("seconds", "s", "from the end of the step before to this one's end, on the device's clock"),
    Column("data", "s", "sampled steps only: waiting for and moving the batch"),
    Column("forward", "s", "sampled steps only"),
    Column("backward", "s", "sampled steps only"),
    Column("optimizer", "s", "sampled steps only"),
)

RANKS = (
    Column("rank", "", "global rank"),
    Column("local_rank", "", "rank on its node"),
    Column("host", "", "node name"),
    Column("device", "", "device as torch names it"),
    Column("device_name", "", "the device's model"),
    Column("cores", "", "logical CPUs the rank was pinned to, or empty"),
    Column("samples", "sample", "trained on by this rank over all epochs"),
    Column("seconds", "s", "this rank's wall time of all training parts"),
    Column("page_faults", "1/step", "pages that the kernel had to find in memory during training, by its own count"),
    Column("cpu_seconds", "s", "during training: processor time of the rank's process; loader workers not counted"),
    Column(
        "throttled_seconds",
        "s",
        "during training: runnable, but its share of a core was used up (the kernel's count)",
    ),
    Column(
        "energy_joules",
        "J",
        "during all training parts: of the rank's GPU; on CPUs of all the machine's processor packages, with its first "
        "rank, and 0 with the others; empty without a readable counter",
    ),
    Column("peak_allocated_bytes", "B", "largest memory in tensors on the accelerator; empty on a CPU"),
    Column("peak_reserved_bytes", "B", "largest memory held by the accelerator's allocator; empty on a CPU"),
    Column("peak_rss_bytes", "B", "largest resident memory of the rank's process"),
    Column(
        "mean_allocated_bytes", "B", "memory in tensors on the accelerator at the ends of sampled steps, their mean"
    ),
    Column("mode_allocated_bytes", "B", "likewise, the commonest value, all rounded to MiB; empty on a CPU"),
    Column(
        "mean_rss_bytes",
        "B",
        "resident memory of the rank's process at the ends of sampled steps, their mean",
    ),
    Column("mode_rss_bytes", "B", "likewise, the commonest value, all rounded to MiB"),
)

RUNS = (
    Column("run_id", "", "the run's folder under results/runs"),
    Column("state", "", "complete; others appear only when asked for"),
    Column("workload", "", "what was trained"),
    Column("dataset", "", "on what"),
    Column(
        "parallel",
        "",
        "none (no process group), ddp, zero1 (optimizer state sharded) or fsdp (weights and gradients too)",
    ),
    Column("world_size", "rank", "ranks over all nodes"),
    Column("nodes", "", "machines"),
    Column("ranks_per_node", "rank", "ranks on each"),
    Column("global_batch", "sample", "samples a step over all ranks"),
    Column("batch_per_device", "sample", "samples a step on each rank"),
    Column("steps_per_epoch", "step", "fixed work, or empty for a pass over the data"),
    Column("bucket_mb", "MiB", "DDP's gradient bucket"),
    Column("comm_hook", "", "the form of gradients on the wire; none or empty: unchanged"),
    Column("accumulate", "", "micro-batches that a step's batch is cut into; empty: 1"),
    Column("precision", "", "fp32 (IEEE), tf32, bf16, fp16"),
    Column(
        "settings",
        "",
        "hash of all other parameters that differ from the defaults: runs that differ in it are never pooled",
    ),
    Column("device", "", "cpu, cuda or rocm"),
    Column("device_name", "", "the device's model"),
    Column("backend", "", "gloo, nccl or rccl; empty without a process group"),
    Column("threads_per_rank", "core", "cores, or the share of one, that make one CPU device; a GPU's host threads"),
    Column("share_period", "s", "period of a share of a core; empty: whole cores"),
    Column("pinned", "", "whether ranks were pinned to their cores"),
    Column(
        "oversubscribed",
        "",
        "more ranks than cores, or shares of more than 90 % of one: barred from scaling figures",
    ),
    Column(
        "profile",
        "",
        "torch, nsys, ncu or cpu (py-spy) profiled some of its steps: barred from scaling figures; else empty",
    ),
    Column("link_gbit", "Gbit/s", "limit of the nodes' links, each way; empty: none"),
    Column("seed", "", "of weights, order and augmentation"),
    Column("repeat", "", "which repeat of the measurement"),
    Column("parameters", "", "number of trainable parameters"),
    Column(
        "flops_per_sample",
        "operation",
        "of the model's forward and backward pass on a sample, matrix products and convolutions alone, multiplication and "
        "addition apart; empty: not counted (no warm-up, or a model that cannot be)",
    ),
    Column("epochs", "epoch", "epochs recorded"),
    Column("samples", "sample", "global samples over all epochs"),
    Column("seconds", "s", "sum of T over all epochs"),
    Column("throughput", "sample/s", "samples / seconds over all epochs"),
    Column("step_p50", "s", "median over epochs of the median step time"),
    Column("test_accuracy", "", "after the last evaluated epoch"),
    Column("restarts", "", "how often the run was continued from a checkpoint"),
    Column("setup_seconds", "s", "model and data, before the warm-up"),
    Column("warmup_seconds", "s", "warm-up steps, compilation included"),
    Column("energy_joules", "J", "of all devices, during T of all epochs; empty if any has no readable counter"),
    Column("energy_source", "", "nvml (GPUs) or rapl (whole processor packages); empty: no energy"),
    Column("peak_allocated_bytes", "B", "largest over ranks; empty on a CPU"),
    Column("peak_rss_bytes", "B", "largest over ranks"),
    Column("mean_allocated_bytes", "B", "mean at the ends of sampled steps, largest over ranks; empty on a CPU"),
    Column("mode_allocated_bytes", "B", "commonest at the ends of sampled steps, largest over ranks; empty on a CPU"),
    Column("mean_rss_bytes", "B", "mean at the ends of sampled steps, largest over ranks"),
    Column("mode_rss_bytes", "B", "commonest at the ends of sampled steps, largest over ranks"),
    Column("page_faults", "1/step", "pages that the kernel had to find in memory, largest over ranks"),
    Column("cpu_seconds", "s", "processor time during training, largest over ranks"),
    Column("throttled_seconds", "s", "runnable, but its share of a core was used up, largest over ranks"),
    Column("hardware_id", "", "hash of the hardware, or the cluster's name"),
    Column("host", "", "rank 0's node"),
    Column("job_id", "", "scheduler's job, if any"),
    Column("digest", "", "sha256 of the measuring code, first 12 digits; joined by + if it changed between restarts"),
    Column("commit", "", "git commit, if known"),
    Column("dirty", "", "whether tracked files outside results/ differed from the commit"),
    Column("started", "", "UTC"),
    Column("torch", "", "version"),
    Column("path", "", "the run's folder, relative to the results"),
)

# Of a host's processors (`cpu`) and of each device of its ranks. Empty: cannot be read.
MONITOR = (
    Column("time", "s", "since the epoch (Unix)"),
    Column("host", "", "node name"),
    Column("device", "", "cpu, or the device as torch names it; `ranks.csv` says whose it is"),
    Column(
        "utilization_percent",
        "%",
        "GPU: share of the time (of NVML's last sample) in which any kernel ran; CPU: of the logical CPUs that the job "
        "may use, since the row before",
    ),
    Column("memory_used_bytes", "B", "of the device, by all processes; CPU: of the host, total minus available"),
    Column("power_watts", "W", "of the GPU's board"),
    Column("temperature_celsius", "°C", "of the GPU; of the CPU the hottest sensor"),
    Column("clock_mhz", "MHz", "GPU: of its multiprocessors; CPU: mean of its cores"),
    Column(
        "throttle", "", "GPU: why its clock is not higher, by NVML's names, joined by +; `gpu_idle` alone is no fault"
    ),
    Column("network_received_bytes", "B", "on the host's row: by all interfaces but loopback since the first row"),
    Column("network_sent_bytes", "B", "likewise"),
    Column(
        "rdma_received_bytes",
        "B",
        "likewise, by the InfiniBand ports' own counters, which the interfaces' do not hold; empty without such ports",
    ),
    Column("rdma_sent_bytes", "B", "likewise"),
    Column("rss_bytes", "B", "on the host's row: resident memory of its ranks, loader workers not counted"),
)

# Behind the columns of RUNS, for imported results. Their `throughput` is the corrected one and `hardware_id` is the
# set's, so that they are never pooled with our runs; what the CSV does not state is empty.
FOREIGN = (
    Column("foreign", "", "name of the imported set"),
    Column("lines", "", "line of `source.csv`, or first and last of the run's epochs"),
    Column("comparable", "", "false: kept, but in no curve (another kind of parallelism, for instance)"),
    Column("reported_throughput", "sample/s", "as reported by its authors, over all ranks; empty: not reported"),
    Column("factor", "", "reported_throughput / throughput"),
    Column(
        "verdict", "", "consistent; counted once per rank; one rank's samples; computed; throughput only, unchecked"
    ),
    Column("correction", "", "the error and its correction; empty: none"),
    Column("derived", "", "values that follow from others in the CSV, and how"),
)

TABLES = {
    "runs.csv": RUNS, "epochs.csv": EPOCHS, "steps.csv.gz": STEPS, "ranks.csv": RANKS, "monitor": MONITOR,
    "foreign": FOREIGN,
}  # fmt: skip


def names(columns: tuple[Column, ...]) -> list[str]:
    """Just the columns' names."""
    return [column.name for column in columns]


def markdown() -> str:
    """The tables of `results/README.md`."""
    where = {
        "runs.csv": "`csv/runs.csv`: one row a run (joined by `hpc collect`)",
        "epochs.csv": "`runs/<run>/epochs.csv` and `csv/epochs.csv` (with `run_id` in front): one row an epoch",
        "steps.csv.gz": "`runs/<run>/steps.csv.gz`: one row a step and rank",
        "ranks.csv": "`runs/<run>/ranks.csv`: one row a rank",
        "monitor": "`runs/<run>/monitor/<host>.csv`, if asked for: one row a device and moment",
        "foreign": "`foreign/<name>/runs.csv`: all columns of `csv/runs.csv`, and behind them these",
    }
    parts = []
    for table, columns in TABLES.items():
        rows = [f"| `{c.name}` | {c.unit} | {c.meaning} |" for c in columns]
        parts.append("\n".join([f"### {where[table]}", "", "| column | unit | meaning |", "|---|---|---|", *rows]))
    return "\n\n".join(parts)


def renew(page: str) -> str:
    """`page` (the text of `results/README.md`) with the tables between its two markers written anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{markdown()}\n\n{END}{after}"
