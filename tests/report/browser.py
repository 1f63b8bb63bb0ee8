"""A real browser without a window: what it makes of a page, what it complains about, and whom it calls."""

import json
import re
import subprocess
import zlib
from dataclasses import dataclass

QUIET = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-extensions",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-dev-shm-usage",
    "--enable-logging=stderr",
    "--proxy-server=http://127.0.0.1:9",
    "--proxy-bypass-list=<-loopback>",
)
"""No request gets anywhere: all go through a proxy that is not there, even those to this machine."""

TIMEOUT_SECONDS = 120


@dataclass(frozen=True, kw_only=True)
class Visit:
    """What came of opening a page."""

    dom: str
    """The document after loading, as the browser would write it."""
    console: list[str]
    """Lines of the console: errors, and refusals of the page's own policy."""
    requests: list[str]
    """Addresses the page asked for."""


def visit(page, home, *flags):
    """Open a file and return what came of it; the browser's own files go to `home`."""
    log = home / "net.json"
    done = run(page, home, "--dump-dom", f"--log-net-log={log}", "--net-log-capture-mode=Everything", *flags)
    return Visit(dom=done.stdout, console=console(done.stderr), requests=calls(log))


def printed(page, home):
    """Return the PDF of a page."""
    target = home / "page.pdf"
    run(page, home, f"--print-to-pdf={target}", "--no-pdf-header-footer")
    return target.read_bytes()


def seen(page, home, **settings):
    """Return the pixels of a page under settings of the browser, such as `preferredColorScheme=0`."""
    target = home / "page.png"
    target.unlink(missing_ok=True)
    chosen = ",".join(f"{name}={value}" for name, value in settings.items())
    run(
        page,
        home,
        f"--screenshot={target}",
        "--window-size=1000,3000",
        *([f"--blink-settings={chosen}"] if chosen else []),
    )
    return zlib.decompress(b"".join(chunk for kind, chunk in chunks(target.read_bytes()) if kind == b"IDAT"))


def corner(pixels):
    """Return red, green and blue of the first pixel: it has no neighbour, so that no filter of PNG changes it."""
    return tuple(pixels[1:4])


def chunks(png):
    """Return kind and content of the chunks of a PNG file."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    out, place = [], 8
    while place < len(png):
        size = int.from_bytes(png[place : place + 4])
        out.append((png[place + 4 : place + 8], png[place + 8 : place + 8 + size]))
        place += size + 12
    return out


def run(page, home, *flags):
    done = subprocess.run(
        ["chromium", *QUIET, f"--user-data-dir={home / 'profile'}", *flags, page.as_uri()],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done


def console(stderr):
    """Return what the page said, out of all that the browser says."""
    return [line for line in stderr.splitlines() if re.search(r":CONSOLE[:(]", line)]


def calls(log):
    """Return the addresses that the page asked for, out of all requests of a net log.

    The browser runs errands of its own (updates, the time of day), which have no page that began them.
    """
    data = json.loads(log.read_text(encoding="utf-8"))
    started = data["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
    begun = [event.get("params", {}) for event in data["events"] if event["type"] == started]
    return [event["url"] for event in begun if "url" in event and event["initiator"] != "not an origin"]
