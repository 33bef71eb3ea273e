"""Papers, proposals and slides: Markdown that cites cells of exported tables, built into PDF and TeX by pandoc and Typst.

`substitute` marks the cited cells, pandoc parses the Markdown, `number_lint` and `pandoc_filter` check and complete its tree, and
pandoc writes Typst or LaTeX with a template. `document` reads, `build` writes. Faults are collected, each with its file and line.

The checks (cited cells, typed quantities, claims), the colophon and the list of all numbers take more than half of this package;
pandoc does none of them.
"""
