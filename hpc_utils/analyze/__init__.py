"""From records to what they mean: NumPy, pandas and SciPy, no torch; every function returns frames or numbers."""
