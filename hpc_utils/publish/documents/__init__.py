"""From Markdown that cites cells of tables to PDF and TeX: every number, figure and table comes from a result set.

source -> marks -> fill -> typst (PDF) or latex (TeX); build composes them. Faults are collected, each with its place.
"""
