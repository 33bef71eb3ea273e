#!/bin/sh
# slurmd runs this before every task, batch scripts included, and takes `export` lines into the task's environment.
# More nodes than cores: timings of jobs on this cluster mean nothing, and those who record must know.
echo "export HPC_SHARED_CORES=1"
