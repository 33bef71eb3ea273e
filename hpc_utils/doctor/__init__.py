"""`hpc doctor` and `hpc bench`: is this machine, or every node of this allocation, ready to measure, and how fast is it?

    python -m torch.distributed.run --standalone --nproc-per-node=2 -m hpc_utils.doctor
    python -m torch.distributed.run --standalone --nproc-per-node=2 -m hpc_utils.doctor.bench allreduce

Every rank measures (facts, JSON-serializable), rank 0 judges them (pure functions of facts) and writes
`results/doctor/<...>/`. Every measurement has a timeout; one that hangs is left behind and named, so that two minutes
are enough even on a faulty cluster. Checks lie in a module per subject; `runner.CHECKS` lists them in order.

The room is large because it holds knowledge that no library has: how each of 22 rows of the report shows a fault of a
driver, an NCCL log, Slurm, a file system or a name service, and what to do about it.
"""
