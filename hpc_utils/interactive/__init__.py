"""Ranks that a notebook drives cell by cell: ipyparallel engines with time limits, which end with the notebook.

    from hpc_utils.interactive.engines import start

    crew = start(2)                  # on this machine's cores; start(2, "slurm") as a Slurm job
    crew.join()                      # makes them ranks of a torch.distributed process group
    %%px                             # a cell on every rank; one that fails or hangs ends it on all
    crew.close()

`engines` and `settle` (which waits for answers) run in the notebook's kernel; `host` is the process that starts and
ends the others, each of which is a `member`; `group` and `backward` run on the engines.

The room is larger than its budget of 3.5 k tokens, because no library frees a rank that hangs in a collective.
"""
