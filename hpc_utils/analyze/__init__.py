"""From records to results: NumPy, pandas and SciPy, no torch; every function returns frames or numbers.

The package is larger than its budget because of `profiles` (two fifths of it), which reads three formats of profilers, and because
each table that texts cite has its own function: fewer tokens would mean fewer tables, intervals or verdicts that readers see.
"""
