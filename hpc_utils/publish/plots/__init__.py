"""Figures, one module per subject; none of them computes what it draws."""
