"""From a notebook and its parameters to processes: on this machine, under torchrun. No torch at import."""
