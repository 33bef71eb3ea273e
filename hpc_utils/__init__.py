"""The compendium's own code: what configures, runs, records, analyses and publishes a study.

Importing the package costs nothing: each room is imported by whoever enters it.
"""
