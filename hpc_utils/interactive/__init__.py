"""Ranks that a notebook drives cell by cell: ipyparallel engines that end with the notebook.

    from hpc_utils.interactive.engines import start

    crew = start(2)                  # on this machine's cores; start(2, "slurm") as a Slurm job
    crew.join()                      # makes them ranks of a torch.distributed process group
    %%px                             # a cell on every rank
    crew.close()

ipyparallel starts and ends the engines. `engines` runs in the notebook's kernel, `group` and `backward` on the
engines.
"""
