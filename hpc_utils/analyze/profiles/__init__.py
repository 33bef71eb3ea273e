"""Profiles of runs, from files to a verdict: `readers.gather(paths)`, then `judge.judge(timelines)`.

`readers` recognises files; `torch_trace`, `nsys` and `ncu` read them. A `timeline` is one device of
one rank, whichever profiler saw it. On it are based `phases`, `kernels` (classes by name), `breakdown` (busy, exposed, idle)
and, over all ranks, `collectives`. `devices` combines them to shares of the time, `rules` hold what they mean by
the `thresholds`, `judge` decides on the `verdict`. `roofline` and `peaks` relate kernels and runs to the GPU's peak.
`profiled_runs` and `monitor` find the profiles and samples of our own runs, `examples` those of other people.
"""
