"""The portal's side: the form and the card as plain pages, and Apache with Open OnDemand's rules for nodes."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2

from tests.support import wait_for

HERE = Path(__file__).parent
MODULES = "/usr/lib/apache2/modules"
PAGE = jinja2.Template("""<!DOCTYPE html><meta charset="utf-8"><title>Portal</title><style>
body { font: 15px sans-serif; margin: 0 auto; max-width: 44em; padding: 1em } h1 { font-size: 1.3em }
label { display: block; font-weight: bold; margin-top: .7em } small { color: #555; display: block }
input { width: 100%; padding: .25em; font: inherit; box-sizing: border-box }
button { font: inherit; margin-top: 1em; padding: .4em 1em; background: #0a58ca; color: white; border: 0; border-radius: 4px }
.card { border: 1px solid #ccc; border-radius: 4px; padding: 1em }
</style><h1>Scaling compendium</h1>
{% if form %}<form onsubmit="document.title = JSON.stringify(Object.fromEntries(new FormData(this))); return false">
{% for name in form.form %}{% set field = form.attributes[name] %}
<label for="{{ name }}">{{ field.label }}</label>
<input name="{{ name }}" id="{{ name }}" value="{{ field.value if field.value is defined }}"
 {% if field.min is defined %}type="number" min="{{ field.min }}" max="{{ field.max }}"{% endif %}
 {% if field.required %}required{% endif %}><small>{{ field.help }}</small>
{% endfor %}<button type="submit">Launch</button></form>
{% else %}<div class="card"><p>Running</p>{{ card }}</div>{% endif %}""")


def form_page(form: dict[str, Any]) -> str:
    """The form; its button puts the values of the fields, as JSON, into the title."""
    return PAGE.render(form=form)


@contextlib.contextmanager
def portal(program: str, address: str, card: str) -> Iterator[str]:
    """Apache (`program`) until the end of the block; the address of the page with a session's card.

    Args:
        address: where the session's node answers, whatever its name. card: HTML.
    """
    with tempfile.TemporaryDirectory(prefix="hpc-portal-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # Apache gives up root
        (folder / "index.html").write_text(PAGE.render(card=card))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        configuration = (HERE / "portal.conf").read_text()
        settings = {"folder": folder, "port": port, "address": address, "modules": MODULES}
        (folder / "portal.conf").write_text(configuration.format(**settings))
        process = subprocess.Popen([program, "-f", folder / "portal.conf", "-DFOREGROUND"], stdin=subprocess.DEVNULL)
        try:
            wait_for(lambda: process.poll() is not None or (folder / "pid").exists(), seconds=30)
            assert process.poll() is None, (folder / "error.log").read_text()
            yield f"http://127.0.0.1:{port}/index.html"
        finally:
            process.terminate()
            process.wait()
