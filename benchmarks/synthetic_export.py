"""Makes exports as Nsight Systems writes them, of runs that never were, and says what is in them.

Tables and columns are those of the real nsys 2022.4 and 2026.2 (`nsys_schema_*.sql`); what the readers of an export must
get right is in them on purpose: work that overlaps across streams, rows in the order in which they ended, correlation ids
that every process counts from one, kernels without a known launch, NVTX texts in place and by number, ranges of NCCL in a
domain of their own, ranges that never end.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

VERSIONS = ("2022.4", "2026.2")
EPOCH = 1_790_000_000_000_000_000  # ns, when the session began
FIRST_PID = 4000
PART = 500_000  # rows at a time

COMPUTED = (  # (short name, demangled name)
    ("sgemm_128x64_nn", "sgemm_128x64_nn"),
    ("elementwise_kernel", "void at::native::elementwise_kernel<(int)128, (int)4, add<float>>(int, T3)"),
    ("conv_fprop", "void cudnn::cnn::conv_fprop<float, (int)3>(cudnn::Params)"),
    ("bn_fw_tr_1C11_kernel_NCHW", "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, (int)512>(cudnn::Tensor)"),
    ("Kernel2", "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128>(T1::Params)"),
)
COMMUNICATED = {
    "2022.4": ("ncclKernel_AllReduce_RING_LL_Sum_float", "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm *)"),
    "2026.2": ("ncclDevKernel_AllReduce_Sum_f32", "ncclDevKernel_AllReduce_Sum_f32(ncclDevKernelArgsStorage<4096>)"),
}
PHASES = (("data", 0.0), ("forward", 0.3), ("backward", 0.55), ("optimizer", 0.15))  # and their share of the kernels


@dataclass(frozen=True)
class Made:
    """One rank of an export; times in ns since the epoch, each array in the order of the rows.

    Attributes:
        pid: its process. device: its first one, where its copies and fills are.
        kernels: int64 (n, 5): start, end, launched (-1: the export does not say), 1 for communication, device.
        names: of each kernel, where in `COMPUTED`, or -1: communication.
        copies: int64 (m, 5): start, end, launched, bytes, and 1 for copies from pageable memory.
        fills: int64 (m, 4): start, end, launched, bytes.
        ranges: {name: (start, end) of each}, NCCL's own among them.
    """

    pid: int
    device: int
    kernels: np.ndarray
    names: np.ndarray
    copies: np.ndarray
    fills: np.ndarray
    ranges: Mapping[str, Sequence[tuple[int, int]]]


def write_export(
    path: Path,
    *,
    version: str = "2026.2",
    kernels: int = 10_000,
    ranks: int = 1,
    devices: int = 1,
    streams: int = 3,
    steps: int = 10,
    communication: bool = True,
    seed: int = 0,
) -> list[Made]:
    """An export of `ranks` processes on one node, each with `devices` devices and `kernels` kernels; what it holds, by rank.

    Kernels run on `streams` streams, communication on another one; `steps` steps have NVTX ranges and a copy each.
    """
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    try:
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE"):
            connection.execute(f"PRAGMA {pragma}")
        connection.executescript(Path(__file__).with_name(f"nsys_schema_{version}.sql").read_text())
        export = _Export(connection, version)
        export.about(ranks, devices)
        draw = np.random.default_rng(seed)
        made = [export.rank(rank, kernels, devices, streams, steps, communication, draw) for rank in range(ranks)]
        export.texts()
        connection.commit()
    finally:
        connection.close()
    return made


class _Export:
    """A file on its way; strings are numbered as they come, as nsys does."""

    def __init__(self, connection: sqlite3.Connection, version: str) -> None:
        self.connection, self.version = connection, version
        self.strings: dict[str, int] = {}

    def text(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings) + 1)

    def texts(self) -> None:
        self.insert("StringIds", len(self.strings), id=list(self.strings.values()), value=list(self.strings))

    def about(self, ranks: int, devices: int) -> None:
        old = self.version == "2022.4"
        export = {
            "EXPORT_PRODUCT_VERSION": f"{self.version}.1",
            "EXPORT_SCHEMA_VERSION": "3.0.0" if old else "3.25.0",
        }
        if not old:
            export |= {"EXPORT_PARAM_TIME_NORMALIZE": "false", "EXPORT_PARAM_TIME_SHIFT": "0"}
            words = ["torchrun", "--nnodes=1", f"--nproc_per_node={ranks}", "train.py"]
            names = ["PROCESS_0:COMMAND", *(f"PROCESS_0:ARGUMENT_{number}" for number in range(len(words) - 1))]
            self.insert("META_DATA_CAPTURE", len(words), name=names, value=words)
        table = "EXPORT_META_DATA" if old else "META_DATA_EXPORT"
        self.insert(table, len(export), name=list(export), value=list(export.values()))
        self.insert("TARGET_INFO_SESSION_START_TIME", 1, utcEpochNs=EPOCH)
        self.insert("TARGET_INFO_GPU", ranks * devices, id=list(range(ranks * devices)), name="NVIDIA H100 80GB HBM3")

    def rank(
        self,
        rank: int,
        count: int,
        devices: int,
        streams: int,
        steps: int,
        communication: bool,
        draw: np.random.Generator,
    ) -> Made:
        pid = FIRST_PID + rank
        process = (1 << 48) | (pid << 24)
        thread = process | pid
        begins = np.array([share for _, share in PHASES]).cumsum() - [share for _, share in PHASES]

        # The host launches one kernel after the other; between two steps it loads data for a while.
        step = np.arange(count) * steps // max(count, 1)
        waits = np.diff(step, prepend=-1) * 50_000
        launched = np.cumsum(draw.integers(2_000, 12_000, count) + waits) + 1_000_000
        start = launched + draw.integers(3_000, 40_000, count)
        end = start + draw.integers(500, 20_000, count)
        sent = (draw.random(count) < 0.05) & communication
        end[sent] += 30_000
        stream = np.where(sent, 20, 7 + np.arange(count) % streams)
        name = np.where(sent, -1, draw.integers(0, len(COMPUTED), count))
        device = rank * devices + (draw.integers(0, devices, count) if devices > 1 else np.zeros(count, np.int64))
        call = np.arange(1, count + 1) + 1000
        known = draw.random(count) >= 0.001  # that the host's call was seen

        demangled = [self.text(long) for _, long in (*COMPUTED, COMMUNICATED[self.version])]
        short = [self.text(text) for text, _ in (*COMPUTED, COMMUNICATED[self.version])]
        order = np.argsort(end, kind="stable")
        self.insert(
            "CUPTI_ACTIVITY_KIND_KERNEL", count, start=start[order], end=end[order], deviceId=device[order], contextId=1,
            streamId=stream[order], correlationId=call[order], globalPid=process,
            demangledName=np.array(demangled)[name[order]], shortName=np.array(short)[name[order]],
            gridX=108, gridY=1, gridZ=1, blockX=256, blockY=1, blockZ=1, registersPerThread=64, gridId=call[order],
            launchType=1, localMemoryTotal=250_871_808, tensorSizeMinusOneElements="[]",
        )  # fmt: skip
        self.insert(
            "CUPTI_ACTIVITY_KIND_RUNTIME", int(known.sum()), start=launched[known], end=launched[known] + 1_500,
            eventClass=0, globalTid=thread, correlationId=call[known], nameId=self.text("cudaLaunchKernel_v7000"),
        )  # fmt: skip

        first = np.searchsorted(step, np.arange(steps))
        opened = launched[np.minimum(first, count - 1)] - 45_000
        closed = np.concatenate([opened[1:] - 1_000, [launched[-1] + 5_000]])
        ranges: dict[str, list[tuple[int, int]]] = {"step": list(zip(opened.tolist(), closed.tolist(), strict=True))}
        for (phase, share), begin in zip(PHASES, begins, strict=True):
            at = opened + 40_000 + ((closed - opened - 40_000) * begin).astype(np.int64)
            until = at + ((closed - opened - 40_000) * share).astype(np.int64)
            at, until = (opened, opened + 40_000) if phase == "data" else (at, until)
            ranges[phase] = list(zip(at.tolist(), until.tolist(), strict=True))
        ranges["ncclAllReduce"] = [(at, at + 900) for at in launched[sent].tolist()]
        self._ranges(ranges, thread)

        copies = np.column_stack(
            [
                opened + 42_000,
                opened + 42_000 + draw.integers(1_000, 30_000, steps),
                opened + 41_000,
                draw.integers(1 << 10, 1 << 24, steps),
                draw.integers(0, 2, steps),
            ]
        )
        fills = np.column_stack([opened + 44_000, opened + 44_900, opened + 43_500, draw.integers(4, 4096, steps)])
        for table, rows, calls, more in (
            ("CUPTI_ACTIVITY_KIND_MEMCPY", copies, count + 2000,
             {"bytes": copies[:, 3], "copyKind": 1, "srcKind": 1 - copies[:, 4], "dstKind": 2}),
            ("CUPTI_ACTIVITY_KIND_MEMSET", fills, count + steps + 3000,
             {"bytes": fills[:, 3], "value": 0, "memKind": 2}),
        ):  # fmt: skip
            numbers = np.arange(steps) + calls
            self.insert(
                table, steps, start=rows[:, 0], end=rows[:, 1], deviceId=rank * devices, contextId=1, streamId=7,
                correlationId=numbers, globalPid=process, **more,
            )  # fmt: skip
            self.insert(
                "CUPTI_ACTIVITY_KIND_RUNTIME", steps, start=rows[:, 2], end=rows[:, 2] + 500, eventClass=0,
                globalTid=thread, correlationId=numbers, nameId=self.text("cudaMemcpyAsync_v3020"),
            )  # fmt: skip

        launched = np.where(known, launched + EPOCH, -1)
        times = np.column_stack([start + EPOCH, end + EPOCH, launched, sent, device])[order]
        copies[:, :3] += EPOCH
        fills[:, :3] += EPOCH
        later = {text: [(at + EPOCH, until + EPOCH) for at, until in spans] for text, spans in ranges.items()}
        return Made(pid, rank * devices, times, name[order], copies, fills, later)

    def _ranges(self, ranges: Mapping[str, Sequence[tuple[int, int]]], thread: int) -> None:
        """Steps by text, phases by number, NCCL's in its domain, and one of each that never ends."""
        for text, spans in ranges.items():
            of_nccl = text.startswith("nccl")
            named = {"text": text} if text == "step" else {"textId": self.text(text)}
            start, end = ([span[place] for span in spans] for place in (0, 1))
            self.insert(
                "NVTX_EVENTS", len(spans) + 1, start=[*start, 1_000], end=[*end, None], eventType=59,
                globalTid=thread, domainId=int(of_nccl), **named,
            )  # fmt: skip
        self.insert("NVTX_EVENTS", 1, start=900, eventType=34, globalTid=thread, domainId=0, text="step")  # a mark

    def insert(self, table: str, count: int, **values: object) -> None:
        """`count` rows: arrays and lists have an entry each, anything else is the same in all; what must be there and is
        not given is 0."""
        declared = self.connection.execute(f"PRAGMA table_info({table})").fetchall()
        constants, columns = {}, {}
        for _, column, kind, needed, _, _ in declared:
            value = values.get(column, ("" if kind == "TEXT" else 0) if needed else None)
            if isinstance(value, np.ndarray | list):
                columns[column] = value
            elif value is not None:
                constants[column] = value
        names = ", ".join(f'"{name}"' for name in (*columns, *constants))
        marks = ", ".join(["?"] * len(columns) + [repr(value) for value in constants.values()])
        for begin in range(0, count, PART):
            parts = (column[begin : begin + PART] for column in columns.values())
            rows = zip(*(part.tolist() if isinstance(part, np.ndarray) else part for part in parts), strict=True)
            if columns:
                self.connection.executemany(f'INSERT INTO "{table}" ({names}) VALUES ({marks})', rows)
            else:
                self.connection.execute(f'INSERT INTO "{table}" ({names}) VALUES ({marks})')
