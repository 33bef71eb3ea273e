"""From a notebook's cells to HTML that asks the network for nothing: nbconvert, with our template and MathML."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbconvert.exporters import HTMLExporter

# A widget or a script would need libraries from the network; the same output's other forms do not.
SHOWN = ["text/html", "text/markdown", "image/svg+xml", "text/latex", "image/png", "image/jpeg", "text/plain"]


def exporter() -> HTMLExporter:
    """nbconvert's exporter, set for this page; one serves all chapters."""
    from nbconvert.exporters.html import HTMLExporter
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
    from traitlets.config import Config

    class Renderer(IPythonRenderer):
        """Markdown whose formulas are MathML, which browsers draw by themselves."""

        def inline_math(self, body: str) -> str:
            return _mathml(body, "inline")

        def block_math(self, body: str) -> str:
            return f'<span class="formula">{_mathml(body, "block")}</span>'

        def latex_environment(self, name: str, body: str) -> str:
            return self.block_math(f"\\begin{{{name}}}{body}\\end{{{name}}}")

    class Exporter(HTMLExporter):
        def default_filters(self) -> Iterator[tuple[str, Any]]:
            from jinja2 import pass_context

            @pass_context
            def markdown2html(context: Any, source: str) -> str:
                renderer = Renderer(
                    escape=False,
                    embed_images=True,
                    exclude_anchor_links=True,
                    attachments=context.get("cell", {}).get("attachments", {}),
                    path=context["resources"]["metadata"]["path"],
                )
                return _whole(MarkdownWithMath(renderer=renderer).render(source))

            yield from super().default_filters()
            yield "markdown2html", markdown2html
            yield "whole", _whole

    return Exporter(
        config=Config(
            {
                "NbConvertBase": {"display_data_priority": SHOWN},
                "CoalesceStreamsPreprocessor": {"enabled": True},  # of a progress bar only its last state
            }
        ),
        template_name="basic",
        template_file="chapter.html.j2",
        extra_template_paths=[str(Path(__file__).parent)],
    )


def _whole(html: str) -> str:
    """`html` with every element closed, so that it ends where its cell does."""
    from bs4 import BeautifulSoup

    return str(BeautifulSoup(html, "html.parser"))


def _mathml(formula: str, display: str) -> str:
    from latex2mathml.converter import convert

    try:
        return convert(formula.strip(), display=display)
    except Exception:  # any formula that it does not understand; the source is readable too
        return f"<code>{escape(formula.strip())}</code>"
