"""Measured side by side by `python -m benchmarks NAME`."""
