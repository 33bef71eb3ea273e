"""Papers, proposals and slides: Markdown that cites cells of exported tables, built into PDF and TeX by pandoc and Typst; and `release`.

`build` reads a document: `citations` marks the cited cells, pandoc parses the Markdown, `number_lint` checks its tree and `citations`
completes it. Then `pandoc` writes Typst or LaTeX with a template. Faults are collected, each with its file and line. `draft` begins one.

The checks (cited cells, typed quantities, claims), the colophon and the list of all numbers take more than half of this package;
pandoc does none of them.
"""
