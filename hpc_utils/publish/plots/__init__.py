"""Figures, one module per subject. They plot tables of `analyze` and compute nothing."""
