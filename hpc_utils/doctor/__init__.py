"""Is this machine or cluster ready to measure, and how fast is it? Checks of `hpc doctor`, and the benches of `hpc bench`.

`check` defines what a check is, each subject has a module of checks, and `runner` runs them on all ranks. The room exceeds
its budget because most of it is what to do about each fault.
"""
