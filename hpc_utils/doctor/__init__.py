"""`hpc doctor` and `hpc bench`: is this machine, or each node of an allocation, ready to measure, and how fast is it?

    python -m torch.distributed.run --standalone --nproc-per-node=2 -m hpc_utils.doctor
    python -m torch.distributed.run --standalone --nproc-per-node=2 -m hpc_utils.doctor.bench allreduce

Each rank measures facts (JSON-serializable), rank 0 judges them (pure functions of facts) and writes `results/doctor/<...>/`.
Each measurement has a timeout; one that hangs is abandoned and named, so the doctor ends within two minutes also on a
faulty cluster. Each subject has a module of checks; `runner.CHECKS` lists them in order.

The room is larger than its budget because it holds knowledge that no library has: how each of 22 rows of the report shows
a fault of a driver, NCCL, Slurm, a file system or a name service, and its remedy.
"""
