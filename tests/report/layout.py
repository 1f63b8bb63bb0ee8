"""What a page looks like in a real browser: measured by a script that the page itself would forbid."""

import json
import re
from html import escape
from pathlib import Path

from parity.report.html import POLICY
from tests.report.browser import visit

SCRIPT = Path(__file__).with_name("layout.js").read_text(encoding="utf-8")


def measured(html, width, home, *, dark, folded=False):
    """Return what a page is like at a width, with all that is folded open unless it is to stay folded.

    The page stands in a frame of that width, since the browser's own window has a least one.
    """
    assert POLICY in html
    loose = html.replace(POLICY, "default-src * 'unsafe-inline'")
    loose = loose if folded else loose.replace("<details", "<details open")
    scheme = f"<style>:root {{ color-scheme: {'dark' if dark else 'light'}; }} body {{ margin: 0; }}</style>"
    frame = f'<iframe id="page" style="width:{width}px;height:900px;border:0" srcdoc="{escape(loose)}"></iframe>'
    run = f"document.getElementById('page').onload = () => {{\n{SCRIPT}\n}};"
    outer = home / "outer.html"
    outer.write_text(
        f"<!DOCTYPE html><meta charset='utf-8'>{scheme}<body>{frame}<script>{run}</script></body>", encoding="utf-8"
    )
    dom = visit(outer, home, f"--blink-settings=preferredColorScheme={0 if dark else 1}").dom
    found = re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)
    assert found, dom[-500:]
    return json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
