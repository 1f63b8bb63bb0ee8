"""The page in a real browser: it renders, complains of nothing, calls nobody, prints, and needs no script."""

import re

import pytest

from parity.report.html import POLICY, bench_page, check_page
from parity.results import read_benchmarks
from tests.report.browser import console, corner, printed, seen, visit
from tests.report.samples import ALL, ENVIRONMENT, GROWTH, RESUME, bench_written, benchmark, ratio
from tests.report.test_html import hostile

pytestmark = pytest.mark.takes_seconds


def benchmarks(tmp_path):
    path = bench_written(
        tmp_path / "b.json",
        benchmark("a", ratios={"ours / theirs": ratio(1.5, 1.02)}),
        benchmark("b", growth={"g": GROWTH}),
    )
    return bench_page(read_benchmarks(path))


PAGES = {
    "every kind of check": lambda tmp_path: check_page(ALL, ENVIRONMENT),
    "a hostile result": lambda tmp_path: check_page([hostile()], ENVIRONMENT),
    "benchmarks": benchmarks,
}


@pytest.fixture
def opened(tmp_path):
    """Return a function that writes a page and opens it."""

    def go(html, how=visit, **settings):
        (tmp_path / "page.html").write_text(html, encoding="utf-8")
        return how(tmp_path / "page.html", tmp_path, **settings)

    return go


@pytest.mark.parametrize("page", PAGES)
def test_the_page_renders_without_a_complaint_and_without_a_request(page, opened, tmp_path):
    html = PAGES[page](tmp_path)
    found = opened(html)
    assert found.dom.count("<svg") == html.count("<svg") > 3
    assert found.dom.count("</td>") == html.count("</td>") > 10
    assert found.dom.rstrip().endswith("</html>")
    assert found.console == []
    assert found.requests == []


def test_the_page_prints(opened):
    pdf = opened(check_page(ALL, ENVIRONMENT), printed)
    assert pdf.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 2, "of several sheets"
    assert b"/Font" in pdf, "letters stay letters"


def test_the_page_follows_the_colour_scheme(opened):
    html = check_page([RESUME], ENVIRONMENT)
    light, dark = (corner(opened(html, seen, preferredColorScheme=scheme)) for scheme in (1, 0))
    assert min(light) > 240
    assert max(dark) < 60


def without_policy(html):
    """Return a page that would be let do what its policy forbids."""
    assert POLICY in html
    return html.replace(POLICY, "default-src * 'unsafe-inline'")


PLANTED = {
    "image": '<img src="http://planted.invalid/x.png">',
    "style": '<link rel="stylesheet" href="https://planted.invalid/x.css">',
    "image of this machine": '<img src="http://127.0.0.1:7/x.png">',
    "script": "<script>fetch('http://planted.invalid/x')</script>",
}


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_request_is_seen(plant, opened):
    """The net that is to catch requests does catch them; and the page's own policy stops each of them."""
    html = check_page([RESUME], ENVIRONMENT).replace("<main>", f"<main>{PLANTED[plant]}")
    loose = opened(without_policy(html))
    assert loose.requests == re.findall(r"https?://[\w.:/]+", PLANTED[plant]), "seen where nothing forbids it"
    strict = opened(html)
    assert strict.requests == [], "stopped by the policy"
    assert "violates the following Content Security Policy" in strict.console[0]


def test_a_planted_console_error_is_seen(opened):
    html = check_page([RESUME], ENVIRONMENT).replace("<main>", "<main><script>console.error('planted')</script>")
    assert "planted" in opened(without_policy(html)).console[0]


def test_the_page_looks_the_same_where_scripts_may_run_and_where_not(opened):
    """Its policy forbids scripts, so that without it a script would show; one that is planted does."""
    html = check_page(ALL, ENVIRONMENT)
    assert opened(html, seen) == opened(without_policy(html), seen)
    planted = html.replace(
        "<main>", "<main><p id='a'></p><script>document.getElementById('a').innerText = 1</script>"
    )
    assert opened(planted, seen) != opened(without_policy(planted), seen)


def test_what_the_browser_says_of_itself_is_not_the_console():
    assert console("[1:2:1121/134740.5:ERROR:dbus/bus.cc:405] Failed\n") == []
    assert len(console('[1:2:1121/134740.5:INFO:CONSOLE:12] "no", source: file:///p (12)\n')) == 1
