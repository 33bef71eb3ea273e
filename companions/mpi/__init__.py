"""A data-parallel training framework from its parts: OpenMP loader, model, MPI all-reduce, CUDA kernels (chapter 09)."""
