"""The guide of a cluster: what it has, which options were measured there, how to launch them, and what its collectives cost."""
