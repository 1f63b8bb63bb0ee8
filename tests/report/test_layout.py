"""The pages on a phone, a tablet and a desk, light and dark: nothing is cut, everything can be read and reached."""

from dataclasses import replace

import pytest

from parity.report.html import bench_page, check_page
from parity.results import CaseOutcome, LeafChange, read_benchmarks
from tests.report.layout import measured
from tests.report.samples import ALL, BARE, BROKEN, ENVIRONMENT, GROWTH, bench_written, benchmark, ratio

pytestmark = pytest.mark.takes_seconds

WIDTHS = (420, 800, 1280)
TEXT, LINES = 4.5, 3.0
"""Least contrast with what is behind: WCAG 2.2, 1.4.3 and 1.4.11."""

LEAVES = tuple(
    LeafChange(
        where="restored at step 80 is not what was saved",
        leaf=f"optimizer.first_moment.layers.{n}.attention.projection.weight",
        kind="value",
        detail="float32[128,128] of another value",
        elements=16384,
        differing=16000,
        max_abs=0.25,
        max_rel=1.5,
    )
    for n in range(3)
)
CASES = tuple(
    CaseOutcome(group="ties", rule="of equal metrics the newer is better", name=f"case {n}", events=4, found=found)
    for n, found in enumerate(("", "ties: case 1: after `save 20 0.5`: keeps 10"))
)


def checks():
    lost, policy = replace(BROKEN, leaves=LEAVES), replace(BARE, verdict="broken", cases=CASES)
    own = {"time": "2026-11-22T20:00:00+00:00", "command": "parity check --report reports/check", "version": "0.1.0"}
    return check_page([*ALL, lost, policy], ENVIRONMENT | own | {"flags": ["flag"] * 90})


def benchmarks(tmp_path):
    long = "test_jax_twin_against_a_bare_scan_by_size[hidden 1536x2, batch 1024]"
    trains = {"model": "mlp-digits", "side": "jax", "mode": "scan"}
    path = bench_written(
        tmp_path / "b.json",
        benchmark(f"{long} twin", ratios={"twin / bare": ratio(1.5, 1.02)}, steps_per_second=1.0, trains=trains)
        | {"group": f"benchmarks/test_throughput.py::{long}"},
        benchmark("b", ratios={"ours over theirs": ratio(12.5, 12.4, "higher", low=12.1, high=13.0)}),
        benchmark("c", ratios={"ours / theirs": ratio(1.0, 1.02, low=0.99, high=1.01)}, growth={"g": GROWTH}),
        machine={"cpu": {"flags": ["flag"] * 90, "brand_raw": "A CPU of a long name, 2.60 GHz"}},
    )
    return bench_page(read_benchmarks(path))


PAGES = {"checks": lambda tmp_path: checks(), "benchmarks": benchmarks}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_read_and_reached_at_every_width(page, width, dark, tmp_path):
    found = measured(PAGES[page](tmp_path), width, tmp_path, dark=dark)
    assert found["width"] == width
    assert found["page"] <= width, "the page does not scroll sideways"
    assert found["cut"] == []
    assert len(found["text"]) > 8
    assert {name: value for name, value in found["text"].items() if value < TEXT} == {}
    assert len(found["lines"]) > 5
    assert {name: value for name, value in found["lines"].items() if value < LINES} == {}
    for box in found["boxes"]:
        assert (box["key"], box["role"]) == (0, "region"), box
        assert box["label"], box
    if page == "benchmarks":
        assert [box for box in found["boxes"] if box["sideways"]] == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_two_lines_differ_by_dashes_and_in_every_kind_of_sight(dark, tmp_path):
    """Blue and orange: they differ in the blue channel, which red-green blindness leaves, and in lightness."""
    found = measured(checks(), 1280, tmp_path, dark=dark)
    reference, other = found["dashes"]
    assert reference == "none"
    assert other != "none"
    (r1, _, b1), (r2, _, b2) = found["colors"]
    assert b2 - b1 > 90
    assert r1 > b1
    assert b2 > r2


def test_scrolling_boxes_are_there_and_labelled_on_a_phone(tmp_path):
    boxes = measured(checks(), 420, tmp_path, dark=False)["boxes"]
    assert any(box["sideways"] for box in boxes)
    assert any("overview" in box["label"] for box in boxes)


PLANTS = {
    "a faint line": ("text", "lines", ".line.reference { stroke: #b4c8e0; }"),
    "faint text": ("lines", "text", ".quiet { color: #c0c0c0; }"),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_planted_faintness_is_seen(plant, tmp_path):
    fine, faint, style = PLANTS[plant]
    found = measured(checks().replace("</style>", f"{style}</style>"), 800, tmp_path, dark=False)
    assert min(found[faint].values()) < LINES
    assert min(found[fine].values()) >= LINES


@pytest.mark.parametrize(
    "planted",
    [
        "<div style='width:600px'>wide</div>",
        "<div style='overflow:hidden;width:200px;white-space:nowrap'>" + "cut " * 99 + "</div>",
    ],
    ids=["wider than the page", "cut"],
)
def test_what_is_cut_is_seen(planted, tmp_path):
    found = measured(benchmarks(tmp_path).replace("<main>", f"<main>{planted}"), 420, tmp_path, dark=False)
    assert found["cut"]


def test_a_box_that_the_keyboard_does_not_reach_is_seen(tmp_path):
    html = checks().replace('tabindex="0" role="region"', "")
    boxes = measured(html, 420, tmp_path, dark=False)["boxes"]
    assert [box for box in boxes if (box["key"], box["role"]) != (0, "region")]
