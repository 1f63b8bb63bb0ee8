"""The HTML page: every verdict, valid SVG, figures that are the record's, nothing of a file as markup."""

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from parity.contract import Divergence
from parity.report import flatten, meaning
from parity.report.html import POLICY, check_page, figures, verdict_icon
from parity.results import EXIT_CODES, CaseOutcome, LeafChange, ResolvedSpec
from tests.report.samples import ALL, BARE, BROKEN, CURVES, ENVIRONMENT, HANDOVER, HOSTILE, LOSS, RESUME, STEPS, TWINS

SVG = "{http://www.w3.org/2000/svg}"


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
def test_the_charts_of_a_check_are_followed_by_their_figures(record):
    html = check_page([record], ENVIRONMENT)
    charts = re.findall(r"<figure.*?</figure>", html, re.DOTALL)
    assert len(charts) == len(figures(record)) >= 5
    after = html[html.rindex("</figure>") :]
    assert re.match(
        r"</figure></div>(<p.*?</p>)?<details><summary>figures of these charts</summary><section id=", after
    )


def number(cell):
    return None if cell == "–" else float(cell)


def equal(a, b):
    return a == b or (a is not None and b is not None and math.isnan(a) and math.isnan(b))


def columns_of(html, number=1):
    """Return head to the values of every figure of a check, those that are a sentence or a link included."""
    found, steps = {}, {}
    for part in re.findall(r'<section id="(check-\d+-figures-\d)">(.*?)</section>', html, re.DOTALL):
        place, inside = part
        page = Page(inside)
        rows = page.tables[0] if page.tables else [["step"]]
        steps[place] = [int(row[0]) for row in rows[1:]]
        own = found.setdefault(place, {})
        for n, head in enumerate(rows[0][1:], 1):
            own[head] = [row[n] for row in rows[1:]]
        for item in re.findall(r"<li>(.*?)</li>", inside):
            name, value = re.fullmatch(r"(.*): (<code>.*</code> at every step|the figures of <a.*)", item).groups()
            if value.startswith("<code>"):
                own[name] = [re.match(r"<code>(.*?)</code>", value)[1]]
            else:
                other, head = re.match(r'the figures of <a href="#(.*?)">(.*?)</a>', value).groups()
                own[name] = found[other][head]
    mine = [place for place in found if place.startswith(f"check-{number}-")]
    return {head: cells for place in mine for head, cells in found[place].items()}, steps.get(mine[0], [])


def is_series(cells, series):
    cells = cells * len(series) if len(cells) == 1 else cells
    return all(equal(number(cell), value) for cell, value in zip(cells, series, strict=True))


def assert_figures(columns, curves):
    """Fail unless every figure of the record can be read from the columns, bit for bit."""
    for name, series in (
        ("difference", curves.difference),
        ("what passes", curves.allowed),
        ("measured envelope", curves.envelope),
    ):
        if series is not None:
            assert is_series(columns.pop(name), series), name
    pairs = [("loss", curves.loss), ("learning rate", curves.lr), ("gradient norm", curves.grad_norm)]
    pairs.append(("loss scale", curves.loss_scale))
    if curves.validations:
        pairs.append((f"validation {curves.validations.metric}", curves.validations.value))
    for name, pair in pairs:
        both = columns.pop(f"{name} (both)", None)
        for label, series in zip(curves.labels, pair, strict=True):
            assert is_series(columns.pop(f"{name}, {label}") if both is None else both, series), (name, label)
    skipped = columns.pop("skipped", [])
    assert [step for step, cell in zip(curves.steps, skipped, strict=False) if cell] == list(curves.skipped)
    assert columns == {}


@pytest.mark.parametrize("record", [RESUME, BROKEN, TWINS, HANDOVER], ids=lambda r: f"{r.name}-{r.verdict}")
def test_every_figure_of_a_table_is_the_records_own(record):
    """Renderers do not compute: what is read back from the cells is the record, bit for bit."""
    columns, steps = columns_of(check_page([record], ENVIRONMENT))
    assert_figures(columns, record.curves)
    assert steps == list(STEPS)


def test_figures_that_checks_share_are_written_once_and_can_be_read_from_each():
    html = check_page([TWINS, HANDOVER], ENVIRONMENT)
    for number, record in enumerate((TWINS, HANDOVER), 1):
        assert_figures(columns_of(html, number)[0], record.curves)
    assert len(html) < len(check_page([TWINS], ENVIRONMENT)) + len(check_page([HANDOVER], ENVIRONMENT)) - 20_000
    assert "the figures of <a href" in html


def test_a_figure_of_another_run_is_not_taken_for_a_shared_one():
    other = replace(RESUME, curves=replace(CURVES, loss=((*LOSS[:-1], 7.0), (*LOSS[:-1], 7.0))))
    columns, _ = columns_of(check_page([RESUME, other], ENVIRONMENT), 2)
    assert columns["loss (both)"][-1] == "7"
    assert_figures(columns, other.curves)


def test_kills_and_resumes_are_marked_at_their_steps():
    loss = re.findall(r"<figure.*?</figure>", check_page([RESUME], ENVIRONMENT), re.DOTALL)[0]
    titles = [element.text for element in svgs(loss)[0].iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["loss", "killed at step 7", "killed at step 10", "resumed from step 6", "resumed from step 9"]


def places(svg, kind):
    """Return the points of the lines of a class."""
    lines = [points(svg, use) for use in svg.iter(f"{SVG}use") if use.get("class") == f"line {kind}"]
    return [tuple(map(float, pair.split(","))) for line in lines for pair in line.split()]


def points(svg, use):
    """Return the points of the shape that an element refers to."""
    (shape,) = (e for e in svg.iter() if e.get("id") == use.get("href").removeprefix("#"))
    return shape.get("points")


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
    found = [e for e in difference.iter(f"{SVG}use") if e.get("class", "").startswith("band")]
    bands = {e.get("class"): points(difference, e).split() for e in found}
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


def test_failing_checks_come_first_in_the_contents_the_overview_and_the_page():
    page, html = parsed(ALL), check_page(ALL, ENVIRONMENT)
    overview = next(table for table in page.tables if table[0][0] == "verdict")
    assert [row[0] for row in overview[1:]] == ["broken", "holds", "holds", "holds", "holds"]
    sections = re.findall(r'<section class="check (\w+)" id="(check-\d)"', html)
    assert sections == [("broken", "check-2"), *(("holds", f"check-{n}") for n in (1, 3, 4, 5))]
    links = [a["href"] for tag, a in page.tags if tag == "a"]
    assert links[:3] == ["#overview", "#check-2", "#group-1"]
    assert links.count("#top") == len(ALL) + 2, "back from each check, the environment and the specs"
    assert 'id="failing"' not in check_page([RESUME], ENVIRONMENT)


ORIGINS = {
    "commit": ({"commit": "abc", "dirty": True}, "commit abc, with uncommitted changes"),
    "installed": ({"commit": None, "version": "0.1.0"}, "parity-suite 0.1.0, installed"),
    "before": ({"commit": None, "dirty": False}, "an installed package"),
}


@pytest.mark.parametrize("origin", ORIGINS)
def test_date_command_and_version_are_said(origin):
    values, words = ORIGINS[origin]
    head = check_page([RESUME], values | {"time": "2026-11-22T20:00:00+00:00", "command": "parity check"})
    assert f"<dt>version</dt><dd>{words}</dd>" in head
    assert "<dt>date</dt><dd>2026-11-22T20:00:00+00:00</dd>" in head
    assert "<dt>command</dt><dd>parity check</dd>" in head
    assert check_page([RESUME], values).count("not recorded") == 2


def test_terms_are_explained_where_they_stand():
    text = parsed([BROKEN]).text
    for said in (
        "How far the loss moves",
        "bitwise: no tolerance",
        "components of the training state",
        "First diverg",
    ):
        assert said in text, said


def test_what_fails_comes_before_the_terms_and_a_page_that_holds_has_them_at_its_table():
    broken, sound = (parsed(records).text for records in ([RESUME, BROKEN], [RESUME]))
    places = [broken.index(said) for said in ("Overview", "Checks that do not hold", "What the words mean")]
    assert places == sorted(places)
    assert broken.count("What the words mean") == sound.count("What the words mean") == 1
    assert sound.index("What the words mean") < sound.index("criterionbitwise: no tolerance")


def test_advice_stands_at_its_suspect_and_nowhere_else():
    advised = replace(BROKEN, advice={"schedule.step": "load <it> last"})
    shown = check_page([advised], ENVIRONMENT)
    assert '<li><code>schedule.step</code> <span class="advice">load &lt;it&gt; last</span></li>' in shown
    assert "<li><code>optimizer.first_moment</code></li>" in shown
    assert 'class="advice"' not in check_page([BROKEN], ENVIRONMENT)


def test_a_quantity_that_is_not_known_is_not_drawn():
    unknown = ((None,) * 12,) * 2
    own = replace(RESUME, curves=replace(CURVES, lr=unknown, grad_norm=unknown, loss_scale=unknown, validations=None))
    assert [chart.title.partition(":")[0] for chart in figures(own)] == ["loss", "difference of the loss"]
    assert "learning rate" not in parsed([own]).text


def test_the_size_of_the_difference_of_a_leaf_is_shown():
    common = {"where": "restored at step 6", "kind": "value", "detail": "float32[4] of another value"}
    sized = LeafChange(leaf="a.b", elements=4, differing=3, max_abs=0.5, max_rel=math.inf, **common)
    rows = parsed([replace(BROKEN, leaves=(sized, LeafChange(leaf="c", **common)))]).tables
    table = next(table for table in rows if table[0][0] == "leaf")
    assert table[1] == ["a.b", "3 of 4", "0.5", "inf", "float32[4] of another value", "restored at step 6"]
    assert table[2][:4] == ["c", "not kept", "", ""]
    many = parsed([replace(BROKEN, leaves=(sized,) * 150)])
    assert "and 50 more leaves" in many.text


def test_the_cases_of_the_policy_are_shown_once_those_that_fail_first():
    cases = [CaseOutcome(group="ties", rule="the newer is better", name=f"case {n}", events=4) for n in range(3)]
    failed = replace(cases[2], found="ties: case 2: lost 20")
    first, second = replace(BARE, cases=tuple(cases)), replace(BARE, sides=("jax",), cases=(*cases[:2], failed))
    page = parsed([first, replace(first, sides=("torch",)), replace(second, verdict="broken")])
    tables = [table for table in page.tables if table[0][:3] == ["verdict", "rule", "case"]]
    assert [len(table) for table in tables] == [4, 4], "equal ones once"
    assert tables[0][1] == ["broken", "the newer is better", "case 2", "4", "ties: case 2: lost 20"]
    assert "3 cases, 12 events: 2 hold, 1 do not" in page.text
    assert "The same cases with the same outcomes" in page.text


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


@pytest.mark.takes_seconds
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


def matrix():
    """Return checks as many and as long as those of `make check`: 4 specs, each resumed, twinned and handed over."""
    draw = np.random.default_rng(0)
    steps, out = tuple(range(1, 201)), []
    for spec in range(4):
        rate, scale = tuple(map(float, draw.random(200))), (1.0,) * 200
        for side in ("jax", "torch"):
            loss, norm = (tuple(map(float, draw.random(200))) for _ in range(2))
            run = {"loss": (loss, loss), "grad_norm": (norm, norm), "lr": (rate, rate), "loss_scale": (scale, scale)}
            same = replace(CURVES, steps=steps, total=200, difference=(0.0,) * 200, **run)
            out.append(replace(RESUME, spec=f"spec {spec}", sides=(side,), curves=same))
            for _ in range(2 + (side == "jax")):
                moved, other = (tuple(map(float, draw.random(200))) for _ in range(2))
                own = {"loss": (loss, moved), "grad_norm": (norm, other), "difference": other}
                out.append(replace(TWINS, spec=f"spec {spec}", curves=replace(same, **own)))
    return out


@pytest.mark.takes_seconds
def test_the_page_of_a_whole_matrix_is_under_a_megabyte():
    records = matrix()
    assert len(records) == 28
    html = check_page(records, ENVIRONMENT)
    assert len(html.encode()) < 1_000_000
    assert_figures(columns_of(html, 3)[0], records[2].curves)
