"""`python -m hpc_utils.cli`: `hpc` where the environment's bin folder is not on the path."""

from hpc_utils.cli import main

main(prog_name="hpc")
