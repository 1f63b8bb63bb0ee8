"""Benchmarks as a table, Markdown and a page: ratios with their spread and bar, growth, and nothing computed."""

import io
import itertools
import re
from itertools import dropwhile, takewhile
from xml.etree import ElementTree

import pytest

from parity.report import (
    WAYS,
    arm_name,
    bench_markdown,
    bench_name,
    bench_verdict,
    bench_words,
    print_benchmarks,
    speed_markdown,
    speed_rows,
    surroundings,
)
from parity.report.html import (
    bench_page,
    box,
    draw,
    growth_chart,
    ratio_scale,
    speed_file,
    speed_panel,
    spread,
    time_scale,
)
from parity.results import read_benchmarks
from tests.report.samples import GROWTH, HOSTILE, bench_written, benchmark, ratio
from tests.report.test_html import Page, svgs


def read(tmp_path, *benchmarks, **machine):
    return read_benchmarks(bench_written(tmp_path / "b.json", *benchmarks, machine=machine))


@pytest.fixture
def file(tmp_path):
    return read(
        tmp_path,
        benchmark("fast", ratios={"ours / theirs": ratio(1.01, 1.02, low=1.005, high=1.015)}),
        benchmark("near", ratios={"ours / theirs": ratio(1.01, 1.02, low=0.99, high=1.03)}),
        benchmark("slow", ratios={"ours / theirs": ratio(1.5, 1.02)}, bytes=123),
        benchmark("scan", ratios={"loop / scan": ratio(12.5, 10.0, "higher"), "no bar": ratio(40.0, None)}),
        benchmark("save", growth={"blocking": GROWTH}),
    )


BARS = {
    "met": ([ratio(1.0, 1.02)], "holds", "All 1 ratios with a bar reach it."),
    "missed": ([ratio(1.1, 1.02), ratio(1.0, 1.02)], "broken", "1 of 2 ratios with a bar miss it."),
    "undecided": (
        [ratio(1.0, 1.02, low=0.9, high=1.1), ratio(1.0, 1.02)],
        "inconclusive",
        "1 of 2 are undecided: the bar lies within the 95 % interval.",
    ),
    "missed and undecided": (
        [ratio(1.0, 1.02, low=0.9, high=1.1), ratio(1.1, 1.02)],
        "broken",
        "1 of 2 ratios with a bar miss it. 1 of 2 are undecided",
    ),
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
    rows = next(table for table in tables if "95 % interval" in table[0])[2:]
    assert [(row[0], row[3], row[4].split(" to ")[0], row[6], row[7]) for row in rows] == [
        ("slow", "1.5", "quartiles 1.47", "at most 1.02", "missed"),
        ("near", "1.01", "0.99", "at most 1.02", "undecided"),
        ("fast", "1.01", "1.005", "at most 1.02", "met"),
        ("scan", "12.5", "quartiles 12.25", "at least 10", "met"),
        ("scan", "40", "quartiles 39.2", "", "no bar"),
    ], "what misses its bar first"


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
    assert "Times are recorded, never judged." in html
    rows = next(table for table in Page(html).tables if "min (s)" in table[0])
    assert rows[2][:1] + rows[2][2:] == ["fast", "0.1", "0.11", "0.12", "0.13", "0.2", "7", ""]


def test_every_drawing_is_valid_xml(file):
    assert len([svg for svg in svgs(bench_page(file)) if svg.get("class") == "spread"]) == 6 + 6, (
        "an axis and five ratios, an axis and five box plots"
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
    line, dot = across(met, "line", "interval"), across(met, "circle", "median")
    assert float(line.get("x1")) < float(dot.get("cx")) < float(line.get("x2"))
    assert across(missed, "path", "median").get("d")
    assert not list(missed.iter("{http://www.w3.org/2000/svg}circle"))
    ring = across(drawn["near"], "circle", "undecided")
    assert float(across(drawn["near"], "line", "interval").get("x1")) < float(ring.get("cx"))
    place = [float(across(drawn[name], "line", "interval").get("x1")) for name in ("fast", "slow", "scan")]
    assert place == sorted(place)


def flag(svg):
    """Return where the bar stands and where its flag ends."""
    x, tip = re.match(r"M([\d.]+) 2v18M[\d.]+ 3l(-?\d+)", across(svg, "path", "bar").get("d")).groups()
    return float(x), float(tip)


def test_a_flag_points_to_the_side_that_is_better(file):
    scale = ratio_scale([r for b in file.benchmarks for r in b.ratios])
    lower, higher = (ElementTree.fromstring(spread(file.benchmarks[n].ratios[0], scale)) for n in (0, 3))
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
    assert not {tag for tag, _ in Page(html).tags} & {"script", "img"}
    assert all(a["href"].startswith("#") for tag, a in Page(html).tags if tag == "a")
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
    assert re.search(r"slow +ours / theirs .* 1\.5 +quartiles 1\.47 to 1\.545 +7 +at most 1\.02 +missed", text)
    assert "bars missed (5 benchmarks). 1 of 4 ratios with a bar miss it. 1 of 4 are undecided" in text


def test_markdown_shows_ratios_and_growth(file):
    markdown = bench_markdown(file)
    of = "ours / theirs (seconds of ours / seconds of theirs)"
    assert f"| slow | {of} | 1.5 | quartiles 1.47 to 1.545 | 7 | at most 1.02 | missed |" in markdown
    assert "| save | blocking | blocking time (s) by parameters (M) | 0.0087 | 0.002 | 0.9991 |" in markdown


SPEEDS = [
    benchmark("a", steps_per_second=12500.0, trains={"model": "mlp-digits", "side": "jax", "mode": "scan"}),
    benchmark("b", steps_per_second=250.4, trains={"model": "mlp-digits", "side": "torch", "mode": "eager"}),
    benchmark(
        "c", steps_per_second=9000.0, trains={"model": "mlp-digits", "side": "jax", "mode": "scan", "devices": 8}
    ),
]


def test_steps_per_second_come_first_and_what_lacks_is_not_measured(tmp_path):
    found = read(tmp_path, *SPEEDS)
    html, markdown, out = bench_page(found), bench_markdown(found), io.StringIO()
    print_benchmarks(found, out)
    table = Page(html).tables[0]
    assert table[0] == ["steps per second (time for 1,000)", "mlp-digits", "cnn-digits", "gpt-text"]
    rows = {row[0]: row[1:] for row in table[1:]}
    assert rows["JAX scan"] == ["12,500 (0.08 s)", "not measured", "not measured"]
    assert rows["PyTorch eager"][0] == "250 (3.99 s)"
    assert rows["JAX scan, 8 devices"][0] == "9,000 (0.111 s)"
    assert set(rows["PyTorch compiled"] + rows["JAX loop, 4 devices"]) == {"not measured"}
    assert len(rows) == len(WAYS) == 10
    assert html.index('id="speeds"') < html.index('class="benchmarks"')
    assert "| JAX scan | 12,500 (0.08 s) | not measured | not measured |" in markdown
    assert re.search(r"JAX scan +12,500 \(0\.08 s\) +not measured", out.getvalue())


def test_a_file_without_speeds_has_no_table_of_them(file):
    assert speed_rows([file]) == []
    assert "not measured" not in bench_page(file) + bench_markdown(file)


def test_bars_are_as_long_as_their_speeds(tmp_path):
    rows = speed_rows([read(tmp_path, *SPEEDS)])
    svg = ElementTree.fromstring(speed_panel(rows, "mlp-digits"))
    lengths = [float(bar.get("width")) for bar in svg.iter("{http://www.w3.org/2000/svg}rect")]
    assert lengths[1] / lengths[0] == pytest.approx(9000 / 12500, abs=0.01)
    assert lengths[2] / lengths[0] == pytest.approx(250.4 / 12500, abs=0.01)
    assert len(lengths) == 3, "what was not measured has no bar"
    texts = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"0", "quartiles"} <= set(texts)
    assert "measured before" not in texts, "the legend has what is drawn"


def test_the_spread_of_the_rounds_is_drawn_around_the_end_of_its_bar(tmp_path):
    rows = speed_rows([read(tmp_path, *SPEEDS)])
    slow, fast = rows[0].spread[0]
    assert slow < 12500.0 < fast
    svg = speed_panel(rows, "mlp-digits")
    whiskers = re.findall(r'class="spread" d="M([\d.]+) [\d.]+v6m0 -3H([\d.]+)m0', svg)[:3]
    bars = [float(width) for width in re.findall(r'class="speed \w+" x="128" y="\d+" width="([\d.]+)"', svg)]
    for (low, high), length in zip(whiskers, bars, strict=True):
        assert float(low) - 0.2 <= 128 + length <= float(high) + 0.2


def test_an_earlier_measurement_stands_beside_the_new_one(tmp_path):
    new = read(tmp_path, *SPEEDS)
    old = read(tmp_path, benchmark("a", **SPEEDS[0]["extra_info"] | {"steps_per_second": 10000.0}))
    rows = speed_rows([new], [old])
    assert "12,500 (0.08 s, before 10,000)" in speed_markdown(rows)
    assert speed_file(rows).count("<title>before</title>") == 1
    assert ">measured before</text>" in speed_file(rows)
    ElementTree.fromstring(speed_file(rows))


def test_a_box_plot_lies_where_its_times_do():
    names = ("min", "ld15iqr", "q1", "median", "q3", "hd15iqr", "max")
    seconds = dict(zip(names, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 9.0), strict=True)) | {"rounds": 7}
    svg = ElementTree.fromstring(box(seconds, time_scale([seconds])))
    whisker = [float(x) for x in re.findall(r"[MH]([\d.]+)", across(svg, "path", "whisker").get("d"))]
    rect, middle = across(svg, "rect", "box"), across(svg, "path", "middle").get("d")
    left, width = float(rect.get("x")), float(rect.get("width"))
    outliers = [float(e.get("cx")) for e in svg.iter("{http://www.w3.org/2000/svg}circle")]
    places = [outliers[0], whisker[0], left, float(re.match(r"M([\d.]+)", middle)[1]), left + width, whisker[1]]
    assert places == sorted(places)
    steps = [b - a for a, b in itertools.pairwise(places)]
    assert steps == pytest.approx([steps[0]] * 5, abs=0.2)
    assert outliers[1] - whisker[1] == pytest.approx(3 * steps[0], abs=0.3)
    plain = {name: value for name, value in seconds.items() if "15iqr" not in name}
    assert "outlier" not in box(plain, time_scale([plain]))


NAMES = {
    "benchmarks/test_throughput.py::test_jax_twin_against_a_bare_scan[mlp-digits]": (
        "JAX twin against a bare scan: mlp-digits"
    ),
    "b.py::test_torch_twin_against[lightning]": "PyTorch twin against lightning",
    "b.py::test_restore[100 M-torch] 100 M": "Restore: 100 M, PyTorch",
    "g": "g",
}


@pytest.mark.parametrize("group", NAMES)
def test_the_page_says_names_and_no_identifiers_of_tests(group, tmp_path):
    test = group.rpartition("::")[2]
    found = read(tmp_path, benchmark(f"{test} twin", ratios={"r": ratio(1.0, 1.02)}) | {"group": group})
    assert bench_name(found.benchmarks[0]) == (NAMES[group] if "::" in group else f"{test} twin")
    assert arm_name(found.benchmarks[0]) == ("twin" if "::" in group else f"{test} twin")
    for text in (re.sub("<[^>]*>", "", bench_page(found).partition("</style>")[2]), bench_markdown(found)):
        assert "test_" not in text
        assert "[" not in text.replace("\\[", "")
    assert NAMES[group] in Page(bench_page(found)).text


def test_the_flags_of_a_cpu_are_folded(tmp_path):
    found = read(tmp_path, benchmark("a"), cpu={"flags": [f"flag{n}" for n in range(60)]})
    html = bench_page(found)
    assert "<details><summary>60 items</summary>flag0 flag1 " in html
    assert "<summary>" not in bench_page(read(tmp_path, benchmark("a"), cpu={"flags": ["one"]})).partition("cpu")[2]
