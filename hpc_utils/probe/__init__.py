"""`hpc doctor`: is this machine, or every node of this allocation, ready to measure?

    python -m torch.distributed.run --standalone --nproc-per-node=2 -m hpc_utils.probe

Every rank looks (facts, JSON-able), rank 0 judges (pure functions of facts) and writes `results/doctor/<...>/`.
A look has its time; one that hangs is left behind and named, so that two minutes are enough even on a sick cluster.
"""
