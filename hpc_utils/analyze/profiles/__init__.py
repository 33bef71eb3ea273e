"""Profiles of runs, from files to a verdict: `readers.gather(paths)`, then `judge.judge(reports)`.

`readers` recognises files; `torch_trace`, `nsys` and `ncu` read them. A `timeline` is one device of one rank, whichever profiler
recorded it. `phases`, `kernels` (classes by name), `breakdown` (busy, exposed, idle) and, over all ranks, `collectives` are computed
from it with `intervals`. `devices` combines them to shares of the time; the rules of `judge` compare these with the thresholds of `verdict`. `roofline` and
`peaks` relate kernels and runs to the GPU's peak. `profiled_runs` and `examples` find the profiles of our own runs and of other
people, `tables` make tables of them; `changes` compares two.

The room is larger than its budget: it reads three formats as their versions since 2020 write them, and matches collectives across
ranks. HolisticTraceAnalysis, the library for the latter, counts host events of compiled runs as work of the device.
"""
