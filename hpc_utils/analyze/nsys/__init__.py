"""Nsight Systems: its SQLite exports (2022.4 to 2026) and reports as timelines, and the CSVs of `nsys stats` as frames.

Schema: NVIDIA Nsight Systems User Guide, "Exporter SQLite Schema"; each export holds it too, as commented SQL. What every
reader of one must know: tables are made when they are needed, so a missing one means that there was no such event; times
are ns since the session began; a process is `globalTid >> 24` (hardware, virtual machine, pid), whose pid are the lowest
24 bits; correlation ids are unique in a process only.
"""

from .reader import read

__all__ = ["read"]
