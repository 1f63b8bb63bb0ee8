"""The HTML page: every verdict, valid SVG, figures that are the record's, nothing of a file as markup."""

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from parity.contract import Divergence
from parity.report import flatten, meaning
from parity.report.html import POLICY, check_page, figures, verdict_icon
from parity.results import EXIT_CODES, ResolvedSpec
from tests.report.samples import ALL, BARE, BROKEN, CURVES, ENVIRONMENT, HANDOVER, HOSTILE, RESUME, STEPS, TWINS


class Page(HTMLParser):
    """What a browser would find: tags in order, text, and the cells of each table."""

    VOID = ("meta", "br", "img", "link", "input")

    def __init__(self, html):
        super().__init__()
        self.tags, self.open, self.text, self.tables = [], [], "", []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] != "style" and ("td" in self.open or "th" in self.open):
            self.tables[-1][-1][-1] += data


def parsed(records, environment=ENVIRONMENT):
    page = Page(check_page(records, environment))
    assert page.open == [], "every element is closed"
    return page


def svgs(html):
    return [ElementTree.fromstring(text) for text in re.findall(r"<svg.*?</svg>", html, re.DOTALL)]


@pytest.mark.parametrize("verdict", EXIT_CODES)
def test_each_verdict_is_told_by_word_shape_and_sentence(verdict):
    record = replace(RESUME, verdict=verdict)
    html = check_page([record], ENVIRONMENT)
    page = Page(html)
    assert f"<span>{verdict}</span></h1>" in html
    assert verdict_icon(verdict) in html
    assert meaning(record) in page.text


def test_no_two_verdicts_share_a_shape():
    shapes = {re.sub(r'class="[^"]*"', "", verdict_icon(verdict)) for verdict in EXIT_CODES}
    assert len(shapes) == len(EXIT_CODES)


@pytest.mark.parametrize("record", ALL, ids=lambda r: f"{r.name}-{r.verdict}")
def test_every_drawing_is_valid_xml_with_finite_places(record):
    drawings = svgs(check_page([record], ENVIRONMENT))
    assert drawings
    for drawing in drawings:
        for element in drawing.iter():
            for value in element.attrib.values():
                assert not re.search(r"\b(nan|inf|None)\b", value), (element.tag, element.attrib)


@pytest.mark.parametrize("record", [RESUME, BROKEN, TWINS, HANDOVER], ids=lambda r: f"{r.name}-{r.verdict}")
def test_every_chart_is_followed_by_its_figures(record):
    html = check_page([record], ENVIRONMENT)
    charts = re.findall(r"<figure.*?</figure>", html, re.DOTALL)
    assert len(charts) == len(figures(record)) >= 5
    for chart in charts:
        assert re.search(r"</svg><details><summary>figures</summary><div class=\"scroll\"><table", chart)


def number(cell):
    return None if cell == "–" else float(cell)


def equal(a, b):
    return a == b or (a is not None and b is not None and math.isnan(a) and math.isnan(b))


@pytest.mark.parametrize("record", [RESUME, BROKEN, TWINS, HANDOVER], ids=lambda r: f"{r.name}-{r.verdict}")
def test_every_figure_of_a_table_is_the_records_own(record):
    """Renderers do not compute: what is read back from the cells is the record, bit for bit."""
    curves = record.curves
    tables = {tuple(table[0]): table[1:] for table in parsed([record]).tables if table[0][0] == "step"}
    bands = [values for values in (curves.allowed, curves.envelope) if values is not None]
    names = [
        name for name, values in (("what passes", curves.allowed), ("measured envelope", curves.envelope)) if values
    ]
    rows = tables["step", "difference", *names]
    for column, series in enumerate((curves.difference, *bands), 1):
        assert all(equal(number(row[column]), value) for row, value in zip(rows, series, strict=True))
    of_pairs = [table[1:] for table in parsed([record]).tables if table[0][1:3] == list(curves.labels)]
    pairs = [curves.loss, curves.lr, curves.grad_norm, curves.loss_scale]
    pairs += [curves.validations.value] if curves.validations else []
    for rows, pair in zip(of_pairs, pairs, strict=True):
        for column, series in enumerate(pair, 1):
            assert all(equal(number(row[column]), value) for row, value in zip(rows, series, strict=True))
    assert [int(row[0]) for row in of_pairs[0]] == list(STEPS)


def test_kills_and_resumes_are_marked_at_their_steps():
    loss = re.findall(r"<figure.*?</figure>", check_page([RESUME], ENVIRONMENT), re.DOTALL)[0]
    titles = [element.text for element in svgs(loss)[0].iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["loss", "killed at step 7", "killed at step 10", "resumed from step 6", "resumed from step 9"]


def places(svg, kind):
    """Return the points of the lines of a class."""
    lines = [e for e in svg.iter("{http://www.w3.org/2000/svg}polyline") if e.get("class") == f"line {kind}"]
    return [tuple(map(float, pair.split(","))) for line in lines for pair in line.get("points").split()]


def test_a_line_falls_where_its_values_do_and_breaks_where_they_are_not_finite():
    loss = svgs(re.findall(r"<figure.*?</figure>", check_page([BROKEN], ENVIRONMENT), re.DOTALL)[0])[0]
    reference, other = places(loss, "reference"), places(loss, "other")
    assert len(reference) == 12
    heights = [y for _, y in reference]
    assert heights == sorted(heights), "a falling loss goes down the drawing"
    assert other[:6] == reference[:6]
    assert len(other) == 8, "two values are not finite, one is missing, one stands alone"
    marks = [e for e in loss.iter("{http://www.w3.org/2000/svg}path") if e.get("class") == "symbol nonfinite"]
    assert [mark[0].text for mark in marks] == ["nan at step 9", "inf at step 10"]


def test_the_envelope_is_a_band_on_both_sides_of_zero():
    difference = svgs(re.findall(r"<figure.*?</figure>", check_page([TWINS], ENVIRONMENT), re.DOTALL)[1])[0]
    bands = {e.get("class"): e.get("points").split() for e in difference.iter("{http://www.w3.org/2000/svg}polygon")}
    assert set(bands) == {"band allowed", "band envelope"}
    allowed, envelope = ([float(p.split(",")[1]) for p in bands[f"band {k}"]] for k in ("allowed", "envelope"))
    assert min(allowed) < min(envelope) < max(envelope) < max(allowed), "what passes is wider than the envelope"
    drawn = [y for _, y in places(difference, "other")]
    assert min(envelope) < min(drawn) < max(drawn) < max(envelope)


def test_what_was_lost_is_shown_and_nothing_is_where_nothing_was():
    broken, holds = check_page([BROKEN], ENVIRONMENT), check_page([RESUME], ENVIRONMENT)
    assert "<li><code>optimizer.first_moment</code></li><li><code>schedule.step</code></li>" in broken
    assert "First divergence: step <b>7</b>, loss" in broken
    assert 'class="lost"' not in holds


@pytest.mark.parametrize("record", [TWINS, BROKEN], ids=["holds", "broken"])
def test_notes_are_shown_once_whatever_the_verdict(record):
    assert parsed([record]).text.count(record.notes[0]) == 1


def test_a_record_without_curves_spec_and_digests_is_shown():
    page = parsed([BARE])
    assert not [tag for tag, _ in page.tags if tag == "figure"]
    assert "Spec 1" not in page.text


def test_an_empty_result_says_so():
    assert "Nothing was compared. That is not a success." in parsed([]).text


def test_a_spec_that_checks_share_is_shown_once_and_linked():
    html = check_page([RESUME, TWINS], ENVIRONMENT)
    assert html.count('id="spec-1"') == 1
    assert html.count('href="#spec-1"') == 2
    assert 'id="spec-2"' not in html
    assert "hidden = [\n    8,\n]" in Page(html).text


def test_every_link_leads_to_a_place_of_the_page():
    page = parsed(ALL)
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    links = {attributes["href"] for tag, attributes in page.tags if tag == "a"}
    assert links
    assert {link.removeprefix("#") for link in links} <= ids


def test_thinned_curves_say_so():
    thinned = replace(RESUME, curves=replace(CURVES, total=5000))
    assert "12 of 5000 steps are shown" in parsed([thinned]).text
    assert "steps are shown" not in parsed([RESUME]).text


def test_every_part_of_the_environment_is_shown():
    text = parsed([BARE], {"versions": {"jax": "0.10.2"}, "commit": None, "odd": []}).text
    assert "versions.jax" in text
    assert "0.10.2" in text
    assert flatten({"a": {}, "b": {"c": None}}) == [("a", {}), ("b.c", "none")]


def hostile():
    """Return a record with markup wherever a text may stand."""
    curves = BROKEN.curves
    return replace(
        BROKEN,
        name=HOSTILE,
        spec=HOSTILE,
        sides=(HOSTILE,),
        suspects=(HOSTILE,),
        notes=(HOSTILE,),
        first_divergence=Divergence(step=7, quantity=HOSTILE, expected=HOSTILE, got=HOSTILE),
        curves=replace(curves, labels=(HOSTILE, HOSTILE), validations=replace(curves.validations, metric=HOSTILE)),
        resolved=ResolvedSpec(toml=HOSTILE, hash=HOSTILE),
        digests={HOSTILE: HOSTILE},
    )


def test_nothing_of_a_file_becomes_markup():
    html = check_page([hostile()], {HOSTILE: {HOSTILE: HOSTILE}})
    page = Page(html)
    clean = Page(check_page([BROKEN], {"a": {"b": "c"}}))
    assert {tag for tag, _ in page.tags} <= {tag for tag, _ in clean.tags}
    assert {name for _, a in page.tags for name in a} <= {name for _, a in clean.tags for name in a}
    assert "<script>alert(1)</script>" in page.text, "it is shown, as text"
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert len(svgs(html)) == len(svgs(check_page([BROKEN], {})))


def test_endless_texts_are_cut():
    long = replace(BROKEN, notes=("a" * 90_000,) * 500, suspects=("b" * 90_000,) * 100)
    assert len(check_page([long], ENVIRONMENT)) < len(check_page([BROKEN], ENVIRONMENT)) + 250_000


def test_the_page_may_load_and_run_nothing():
    page = parsed(ALL)
    policies = [a["content"] for tag, a in page.tags if tag == "meta" and "http-equiv" in a]
    assert policies == [POLICY]
    assert POLICY.startswith("default-src 'none'")
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object", "embed", "form", "base"}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert "url(" not in check_page(ALL, ENVIRONMENT)
    assert "@import" not in check_page(ALL, ENVIRONMENT)
