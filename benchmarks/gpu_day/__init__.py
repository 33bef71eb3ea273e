"""The GPU day: a list of measurements for one GPU, and its bundle for a machine without network."""
