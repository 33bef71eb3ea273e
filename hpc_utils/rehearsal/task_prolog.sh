#!/bin/sh
# slurmd runs this before every task, batch scripts included, and takes `export` lines into the task's environment.
# Nodes share cores: those who record must know how much of a core is this node's.
echo "export HPC_NODE_CORES=${node_cores}"
