"""The performance model of a data-parallel training step: its parts, the fit to measured runs, and what it predicts."""
