"""Ranks that a notebook drives cell by cell: ipyparallel engines that cannot hang it and never outlive it.

    from hpc_utils.interactive.engines import start

    crew = start(2)                  # on this machine's cores; start(2, "slurm") as a Slurm job
    crew.join()                      # makes them ranks of a torch.distributed process group
    %%px                             # a cell on every rank; one that fails or hangs ends it on all
    crew.close()

`engines`, `cells` and `settle`, which waits, are the notebook's side; `host` holds the processes, each of which is a
`member`; `group` and `backward` run on the engines.
"""
