"""Hello world: every rank reports where it runs, and all check their sum.

mpiexec -n 4 python -m companions.mpi
srun --mpi=pmi2 -N 2 --ntasks-per-node=2 python -m companions.mpi
"""

import sys

import numpy as np

from companions.mpi.communication import MPI

comm = MPI.COMM_WORLD
node = comm.Split_type(MPI.COMM_TYPE_SHARED)
hello = (
    f"rank {comm.rank} of {comm.size}: {MPI.Get_processor_name()}, {node.rank} of {node.size} there; "
    f"{MPI.Get_library_version().partition(chr(10))[0]}"
)
for line in comm.gather(hello) or ():
    print(line)
total = np.array([comm.rank + 1.0])
comm.Allreduce(MPI.IN_PLACE, total)
if total[0] != comm.size * (comm.size + 1) / 2:
    sys.exit(f"rank {comm.rank}: the sum over ranks is {total[0]:g}")
MPI.Finalize()
