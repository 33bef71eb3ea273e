#!/bin/sh
# slurmd runs this before every task, batch scripts included, and takes `export` lines into the task's environment.
# Nodes share cores: runs record how much of a core this node has.
echo "export HPC_NODE_CORES={{ plan.node_cores }}"
