"""Benchmarks as a table, Markdown and a page: ratios with their spread and bar, growth, and nothing computed."""

import io
import re
from itertools import dropwhile, takewhile
from xml.etree import ElementTree

import pytest

from parity.report import bench_markdown, bench_verdict, bench_words, print_benchmarks, surroundings
from parity.report.html import bench_page, draw, growth_chart, ratio_scale, spread
from parity.results import read_benchmarks
from tests.report.samples import GROWTH, HOSTILE, bench_written, benchmark, ratio
from tests.report.test_html import Page, svgs


def read(tmp_path, *benchmarks, **machine):
    return read_benchmarks(bench_written(tmp_path / "b.json", *benchmarks, machine=machine))


@pytest.fixture
def file(tmp_path):
    return read(
        tmp_path,
        benchmark("fast", ratios={"ours / theirs": ratio(1.01, 1.02)}),
        benchmark("slow", ratios={"ours / theirs": ratio(1.5, 1.02)}, bytes=123),
        benchmark("scan", ratios={"loop / scan": ratio(12.5, 10.0, "higher"), "no bar": ratio(40.0, None)}),
        benchmark("save", growth={"blocking": GROWTH}),
    )


BARS = {
    "met": ([ratio(1.0, 1.02)], "holds", "All 1 ratios with a bar reach it."),
    "missed": ([ratio(1.1, 1.02), ratio(1.0, 1.02)], "broken", "1 of 2 ratios with a bar miss it."),
    "no bar": ([ratio(1.0, None)], "inconclusive", "nothing is judged"),
    "no ratio": ([], "inconclusive", "nothing is judged"),
}


@pytest.mark.parametrize("case", BARS)
def test_the_bars_decide_the_verdict(case, tmp_path):
    ratios, verdict, words = BARS[case]
    found = read(tmp_path, benchmark("a", ratios={str(n): r for n, r in enumerate(ratios)}))
    assert bench_verdict(found) == verdict
    assert words in bench_words(found)
    assert words in bench_page(found)
    assert words in bench_markdown(found)


def test_a_file_without_benchmarks_is_empty(tmp_path):
    found = read(tmp_path)
    assert bench_verdict(found) == "empty"
    assert "No benchmark was run. That is not a success." in bench_page(found)
    out = io.StringIO()
    print_benchmarks(found, out)
    assert "empty (0 benchmarks)" in out.getvalue()


def test_the_page_shows_each_ratio_with_its_figures_and_whether_it_meets_its_bar(file):
    tables = Page(bench_page(file)).tables
    rows = next(table for table in tables if "quartiles" in table[0])[2:]
    assert [(row[0], row[3], row[4].split(" to ")[0], row[6], row[7]) for row in rows] == [
        ("fast", "1.01", "0.9898", "at most 1.02", "met"),
        ("slow", "1.5", "1.47", "at most 1.02", "missed"),
        ("scan", "12.5", "12.25", "at least 10", "met"),
        ("scan", "40", "39.2", "", "no bar"),
    ]


def test_the_page_shows_points_and_fit_of_a_growth(file):
    tables = Page(bench_page(file)).tables
    points = next(table for table in tables if table[0] == [GROWTH["x"], GROWTH["y"]])
    assert [[float(cell) for cell in row] for row in points[1:]] == GROWTH["points"]
    fit = next(table for table in tables if table[0] == ["fit", "value"])
    assert {name: float(value) for name, value in fit[1:]} == {
        key: GROWTH[key] for key in ("slope", "intercept", "r2")
    }


def test_times_are_shown_and_said_not_to_be_judged(file):
    html = bench_page(file)
    assert "times: recorded, never judged" in html
    rows = next(table for table in Page(html).tables if "min (s)" in table[0])
    assert rows[1] == ["fast", "0.1", "0.11", "0.12", "0.13", "0.2", "7"]


def test_every_drawing_is_valid_xml(file):
    assert len([svg for svg in svgs(bench_page(file)) if svg.get("class") == "spread"]) == 5, (
        "an axis and four ratios"
    )


def across(svg, tag, kind):
    found = [e for e in svg.iter(f"{{http://www.w3.org/2000/svg}}{tag}") if kind in e.get("class", "").split()]
    assert len(found) == 1
    return found[0]


def test_a_spread_lies_where_its_figures_do_and_a_miss_is_told_by_shape(file):
    ratios = [r for b in file.benchmarks for r in b.ratios]
    scale = ratio_scale(ratios)
    drawn = {b.name: ElementTree.fromstring(spread(b.ratios[0], scale)) for b in file.benchmarks if b.ratios}
    met, missed = drawn["fast"], drawn["slow"]
    line, dot = across(met, "line", "quartiles"), across(met, "circle", "median")
    assert float(line.get("x1")) < float(dot.get("cx")) < float(line.get("x2"))
    assert across(missed, "path", "median").get("d")
    assert not list(missed.iter("{http://www.w3.org/2000/svg}circle"))
    place = [float(across(drawn[name], "line", "quartiles").get("x1")) for name in ("fast", "slow", "scan")]
    assert place == sorted(place)


def flag(svg):
    """Return where the bar stands and where its flag ends."""
    x, tip = re.match(r"M([\d.]+) 2v18M[\d.]+ 3l(-?\d+)", across(svg, "path", "bar").get("d")).groups()
    return float(x), float(tip)


def test_a_flag_points_to_the_side_that_is_better(file):
    scale = ratio_scale([r for b in file.benchmarks for r in b.ratios])
    lower, higher = (ElementTree.fromstring(spread(file.benchmarks[n].ratios[0], scale)) for n in (0, 2))
    assert flag(lower)[1] < 0 < flag(higher)[1]


def test_points_of_a_growth_lie_on_its_line_where_the_fit_is_exact(tmp_path):
    exact = GROWTH | {"points": [[1, 3.0], [2, 5.0], [3, 7.0]], "slope": 2.0, "intercept": 1.0, "r2": 1.0}
    growth = read(tmp_path, benchmark("a", growth={"g": exact})).benchmarks[0].growth[0]
    svg = ElementTree.fromstring(draw(growth_chart(growth)))
    line = svg.find(".//{http://www.w3.org/2000/svg}polyline").get("points").split()
    dots = [f"{c.get('cx')},{c.get('cy')}" for c in svg.iter("{http://www.w3.org/2000/svg}circle")]
    assert len(dots) == 3
    assert set(dots) <= set(line)


def test_a_line_that_falls_below_0_before_the_smallest_point_keeps_the_axes_logarithmic(tmp_path):
    points = [[1, 0.001], [10, 0.02], [100, 0.22], [300, 0.7]]
    below = GROWTH | {"points": points, "slope": 0.0025, "intercept": -0.013}
    chart = growth_chart(read(tmp_path, benchmark("a", growth={"g": below})).benchmarks[0].growth[0])
    assert (chart.across.kind, chart.scale.kind) == ("log", "log")
    fit, measured = (plot.values for plot in chart.plots)
    assert [y for y in measured if y is not None] == [y for _, y in points]
    assert fit[0] is None, "-0.0105"
    assert fit[-1] == pytest.approx(0.737)
    ElementTree.fromstring(draw(chart))


@pytest.mark.parametrize(
    "points",
    [[[0, 0], [0, 1]], [[1, -5], [1000, 5]], [[1e-300, 1], [1e300, 2]], [[1, 1], [1e300, 1000]], [[5, 5], [5, 5]]],
)
def test_odd_growths_are_drawn_too(points, tmp_path):
    odd = GROWTH | {"points": points, "slope": 1e300, "intercept": -1e300}
    html = bench_page(read(tmp_path, benchmark("a", growth={"g": odd})))
    drawing = next(svg for svg in svgs(html) if svg.get("role") == "img")
    assert not re.search(r"\b(nan|inf)\b", " ".join(v for e in drawing.iter() for v in e.attrib.values()))


@pytest.mark.parametrize("median", [-1.0, 0.0, 1e-300, 1e300])
def test_odd_ratios_are_drawn_too(median, tmp_path):
    one = ratio(median, 1.0) | {"q1": median, "q3": median}
    html = bench_page(read(tmp_path, benchmark("a", ratios={"r": one})))
    assert len(svgs(html)) >= 3


def test_nothing_of_a_file_becomes_markup_or_markdown(tmp_path):
    evil = ratio(1.5, 1.02) | {"of": HOSTILE}
    growth = GROWTH | {"x": HOSTILE, "y": HOSTILE}
    found = read(
        tmp_path,
        benchmark(HOSTILE, ratios={HOSTILE: evil}, growth={HOSTILE: growth}, **{HOSTILE: HOSTILE}),
        **{HOSTILE: "x"},
    )
    html, markdown = bench_page(found), bench_markdown(found)
    assert not {tag for tag, _ in Page(html).tags} & {"script", "a", "img"}
    assert svgs(html)
    assert "\x1b" not in html + markdown
    assert "<script" not in markdown
    assert "http:" not in markdown
    table = list(takewhile(bool, dropwhile(lambda line: not line.startswith("|"), markdown.splitlines())))
    assert len(table) == 3
    assert {len(re.split(r"(?<!\\)\|", line)) for line in table} == {9}, "a name splits no cell"


@pytest.mark.parametrize(
    ("commit", "words"),
    [
        ({}, "2026-11-21T13:00:00, commit 5fae2ca"),
        ({"dirty": True}, "2026-11-21T13:00:00, commit 5fae2ca with uncommitted changes"),
        ({"id": None, "dirty": True}, "2026-11-21T13:00:00"),
    ],
)
def test_when_and_on_what_code_it_was_measured_is_said(commit, words, tmp_path):
    """Figures of another commit must not be taken for those of the result they are shown with."""
    found = read_benchmarks(bench_written(tmp_path / "b.json", benchmark("a"), commit=commit))
    assert found.measured == words
    assert f"Measured {words}. " in bench_markdown(found)
    assert f">{words}<" in bench_page(found)


def test_a_hostile_commit_is_shown_as_text(tmp_path):
    found = read_benchmarks(bench_written(tmp_path / "b.json", benchmark("a"), commit={"id": HOSTILE}))
    assert "<script" not in bench_markdown(found) + bench_page(found)
    assert "\x1b" not in bench_markdown(found) + bench_page(found)


def test_the_host_is_not_named(file):
    assert not {"node", "release"} & set(surroundings(file))
    assert "a-host" not in bench_page(file) + bench_markdown(file)
    assert "cpu.brand_raw" in bench_page(file)
    assert "cpu.brand_raw" in bench_markdown(file)


def test_the_terminal_shows_the_ratios_and_what_they_come_to(file):
    out = io.StringIO()
    print_benchmarks(file, out)
    text = out.getvalue()
    assert re.search(r"slow +ours / theirs .* 1\.5 +1\.47 to 1\.545 +7 +at most 1\.02 +missed", text)
    assert "bars missed (4 benchmarks). 1 of 3 ratios with a bar miss it." in text


def test_markdown_shows_ratios_and_growth(file):
    markdown = bench_markdown(file)
    of = "ours / theirs (seconds of ours / seconds of theirs)"
    assert f"| slow | {of} | 1.5 | 1.47 to 1.545 | 7 | at most 1.02 | missed |" in markdown
    assert "| save | blocking | blocking time (s) by parameters (M) | 0.0087 | 0.002 | 0.9991 |" in markdown
