"""What watches a run from outside its Python: Nsight Systems, Nsight Compute, py-spy, a monitor of devices. No torch."""
