"""Benchmark files: what is read, what is refused, and when a ratio counts as worse."""

import copy
import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from parity.errors import ResultError
from parity.results import Benchmark, BenchmarkFile, Ratio, Speed, compare_benchmarks, read_benchmarks

STATS = {"min": 1.0, "q1": 1.1, "median": 1.2, "q3": 1.3, "max": 1.4, "rounds": 7, "mean": 1.2, "ops": 0.8}


def a_ratio(median=1.5, spread=0.01, **fields):
    own = {"of": "seconds of twin / seconds of bare", "median": median, "rounds": 7, "better": "lower", "bar": None}
    return own | {"q1": median - spread, "q3": median + spread} | fields


def an_entry(name="test_it twin", ratios=None, **extra):
    info = extra if ratios is None else {"ratios": ratios, **extra}
    return {
        "name": name,
        "fullname": f"a.py::{name}",
        "group": "a.py::test_it",
        "stats": dict(STATS),
        "extra_info": info,
    }


def document(*entries, **fields):
    machine = {"cpu": {"brand_raw": "one", "count": 2}, "python_version": "3.11.7", "versions": {"jax": "0.10.2"}}
    own = {"version": "5.3.1", "datetime": "2026-01-01T00:00:00", "commit_info": {"id": "abc"}}
    return own | {"machine_info": machine, "benchmarks": list(entries)} | fields


@pytest.fixture
def write(tmp_path):
    def write(value, name="bench.json"):
        path = tmp_path / name
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path

    return write


def test_a_file_is_read_with_its_ratios_growth_and_the_rest(write):
    line = {
        "x": "million parameters",
        "y": "seconds",
        "points": [[1, 2.0], [3, 4]],
        "slope": 1,
        "intercept": 1,
        "r2": 1,
    }
    ratios = {"twin / bare": a_ratio(1.01, bar=1.02), "speed": a_ratio(2.0, better="higher", bar=3)}
    entry = an_entry(ratios=ratios, growth={"durable": line}, bytes=12)
    file = read_benchmarks(write(document(entry, an_entry("test_it bare"))))
    assert (file.datetime, file.commit, file.machine["cpu"]["count"]) == ("2026-01-01T00:00:00", "abc", 2)
    first, second = file.benchmarks
    assert (first.name, first.group, first.info) == ("test_it twin", "a.py::test_it", {"bytes": 12})
    assert first.seconds == {"min": 1.0, "q1": 1.1, "median": 1.2, "q3": 1.3, "max": 1.4, "rounds": 7.0}
    assert [(r.name, r.median, r.rounds, r.better, r.bar, r.outcome) for r in first.ratios] == [
        ("twin / bare", 1.01, 7, "lower", 1.02, "met"),
        ("speed", 2.0, 7, "higher", 3.0, "missed"),
    ]
    assert first.growth[0].points == ((1.0, 2.0), (3.0, 4.0))
    assert (second.ratios, second.growth, second.info) == ((), (), {})


def test_entries_that_share_a_name_are_told_apart_by_their_test(write):
    twice = [an_entry() | {"fullname": f"{file}.py::test_it twin"} for file in "ab"]
    file = read_benchmarks(write(document(*twice)))
    assert [b.name for b in file.benchmarks] == ["a.py::test_it twin", "b.py::test_it twin"]


def test_a_run_that_measured_nothing_is_an_empty_file_and_no_commit_is_none(write):
    file = read_benchmarks(write(document(commit_info={"error": "no repository"})))
    assert (file.benchmarks, file.commit) == ((), None)


@pytest.mark.parametrize(
    ("median", "better", "bar", "outcome"),
    [
        (1.5, "lower", 1.5, "met"),
        (1.51, "lower", 1.5, "missed"),
        (10, "higher", 10, "met"),
        (9.9, "higher", 10, "missed"),
    ],
)
def test_a_bar_is_met_at_its_value_and_on_its_side(median, better, bar, outcome):
    fields = {"q1": median, "q3": median, "rounds": 7, "of": "a / b"}
    assert Ratio(name="r", median=median, better=better, bar=bar, **fields).outcome == outcome
    assert Ratio(name="r", median=median, better=better, bar=None, **fields).outcome is None


@pytest.mark.parametrize(
    ("low", "high", "better", "outcome"),
    [
        (1.4, 1.5, "lower", "met"),
        (1.4, 1.51, "lower", "undecided"),
        (1.49, 1.6, "lower", "undecided"),
        (1.5, 1.6, "lower", "undecided"),
        (1.51, 1.6, "lower", "missed"),
        (1.5, 1.6, "higher", "met"),
        (1.49, 1.6, "higher", "undecided"),
        (1.4, 1.51, "higher", "undecided"),
        (1.4, 1.5, "higher", "undecided"),
        (1.4, 1.49, "higher", "missed"),
    ],
)
def test_a_bar_within_the_interval_is_undecided_on_whatever_side_the_median_lies(low, high, better, outcome):
    for median in (low, high):
        own = a_ratio(median, better=better, bar=1.5, low=low, high=high)
        assert Ratio(name="r", **own).outcome == outcome
        assert Ratio(name="r", **own | {"bar": None}).outcome is None


BROKEN = {
    "": "is empty: the run that was to write it did not finish",
    "{": "cannot be read: .*a truncated file comes from a run that broke off",
    "[1]": "cannot be read: expected an object, got list",
    "\x00\x01": "cannot be read: ",
    "[" * 100_000: "cannot be read: ",
    '{"a": NaN}': "NaN is not JSON",
    '{"a": 1e999}': "1e999 is no finite number",
    '{"schema": 1, "checks": []}': "lacks version, machine_info, benchmarks, datetime and holds checks, schema",
}


@pytest.mark.parametrize(("text", "problem"), BROKEN.items(), ids=range(len(BROKEN)))
def test_what_is_no_file_of_benchmarks_is_one_error_that_names_the_file(text, problem, write):
    with pytest.raises(ResultError, match=problem) as caught:
        read_benchmarks(write(text))
    assert "bench.json" in str(caught.value)


def test_a_file_that_was_cut_off_anywhere_is_refused(write):
    text = json.dumps(document(an_entry(ratios={"r": a_ratio()})))
    for length in range(0, len(text), 7):
        with pytest.raises(ResultError, match=r"bench\.json (is empty|cannot be read)"):
            read_benchmarks(write(text[:length]))


def planted(value, path, new):
    """Return a document with one value replaced, or taken out."""
    value = copy.deepcopy(value)
    *way, last = path
    part = value
    for key in way:
        part = part[key]
    if new is None:
        del part[last]
    else:
        part[last] = new
    return value


RATIO = ("benchmarks", 0, "extra_info", "ratios", "r")
GROWTH = ("benchmarks", 0, "extra_info", "growth", "g")


@pytest.mark.parametrize(
    ("path", "new", "problem"),
    [
        (("version",), "6.0", r"version: expected pytest-benchmark 4\.x or 5\.x, got '6\.0'"),
        (("version",), 5, "json: version: expected a text, got 5"),
        (("benchmarks",), {}, "json: benchmarks: expected a list of at most 10000 items, got {}"),
        (("benchmarks", 0), 1, r"json: benchmarks\[0\]: expected an object, got 1"),
        (("machine_info",), [], r"json: machine_info: expected an object of at most 10000 names, got \[\]"),
        (("benchmarks", 0, "name"), None, r"json: benchmarks\[0\]: expected a field name, got \[.*'fullname'"),
        (
            ("benchmarks", 0, "name"),
            "x" * 2001,
            r"benchmark 'xxx.*\.\.\.\.name: expected a text of at most 2000 characters",
        ),
        (("benchmarks", 0, "stats"), None, "benchmark 'test_it twin': expected a field stats"),
        (
            ("benchmarks", 0, "stats", "q1"),
            "1",
            r"benchmark 'test_it twin'\.stats\.q1: expected a finite number, got '1'",
        ),
        (("benchmarks", 0, "stats", "q3"), "inf", r"stats\.q3: expected a finite number, got 'inf'"),
        (("benchmarks", 0, "stats", "rounds"), True, r"stats\.rounds: expected a finite number, got True"),
        (("benchmarks", 0, "extra_info"), None, "expected a field extra_info"),
        (
            ("benchmarks", 0, "extra_info", "ratios"),
            [],
            r"benchmark 'test_it twin'\.ratios: expected an object of at most 1000 names, got \[\]",
        ),
        (RATIO, 1.5, "benchmark 'test_it twin', ratio 'r': expected an object, got 1.5"),
        ((*RATIO, "of"), None, "ratio 'r': expected a field of"),
        ((*RATIO, "better"), "smaller", r"ratio 'r'\.better: expected one of lower, higher, got 'smaller'"),
        ((*RATIO, "median"), 9.0, r"ratio 'r': expected q1 <= median <= q3, got \(1\.49, 9\.0, 1\.51\)"),
        ((*RATIO, "median"), 10**400, r"ratio 'r'\.median: expected a number that fits 64 bits"),
        (
            (*RATIO, "low"),
            1.4,
            r"ratio 'r': expected both ends of the interval, low and high, or none, got \(1\.4, N",
        ),
        ((*RATIO, "rounds"), 0, r"ratio 'r'\.rounds: expected a count of at least 1, got 0"),
        ((*RATIO, "rounds"), 2.5, r"ratio 'r'\.rounds: expected an integer of 64 bits, got 2\.5"),
        ((*RATIO, "bar"), "1", r"ratio 'r'\.bar: expected a finite number, got '1'"),
        ((*GROWTH, "points"), [[1, 2]], r"growth 'g'\.points: expected at least two points"),
        ((*GROWTH, "points"), [[1, 2], [3]], r"growth 'g'\.points\[1\]: expected 2 items, got \[3\]"),
        ((*GROWTH, "slope"), None, "growth 'g': expected a field slope"),
    ],
)
def test_a_value_of_another_form_is_named_with_its_entry(path, new, problem, write):
    line = {"x": "a", "y": "b", "points": [[1, 2], [2, 3]], "slope": 1, "intercept": 1, "r2": 1}
    whole = document(an_entry(ratios={"r": a_ratio()}, growth={"g": line}))
    assert read_benchmarks(write(whole)).benchmarks[0].growth
    with pytest.raises(ResultError, match=problem):
        read_benchmarks(write(planted(whole, path, new)))


def test_an_interval_that_does_not_hold_its_median_is_refused(write):
    for low, high in ((1.51, 1.6), (1.4, 1.49)):
        ratios = {"r": a_ratio(low=low, high=high)}
        with pytest.raises(ResultError, match=r"ratio 'r': expected low <= median <= high"):
            read_benchmarks(write(document(an_entry(ratios=ratios))))


def test_what_trains_is_read_for_the_table_of_steps_per_second(write):
    trains = {"model": "gpt-text", "side": "jax", "mode": "scan", "devices": 4}
    first, second = read_benchmarks(
        write(document(an_entry(trains=trains, steps_per_second=12.5), an_entry("test_it bare")))
    ).benchmarks
    assert (first.speed, first.steps_per_second) == (Speed(**trains), 12.5)
    assert (second.speed, second.steps_per_second) == (None, None)


def test_the_same_benchmark_twice_is_refused(write):
    with pytest.raises(ResultError, match=r"holds 2 benchmarks called 'a\.py::test_it twin'"):
        read_benchmarks(write(document(an_entry(), an_entry())))


def test_more_values_than_any_run_has_are_refused_unparsed(write, monkeypatch):
    monkeypatch.setattr("parity.storage.untrusted.MAX_VALUES", 10)
    with pytest.raises(ResultError, match="holds more than 10 values"):
        read_benchmarks(write(document(an_entry())))


def test_what_is_no_regular_file_is_refused(tmp_path, write):
    with pytest.raises(ResultError, match="cannot be read"):
        read_benchmarks(tmp_path / "none.json")
    with pytest.raises(ResultError, match="is not a regular file"):
        read_benchmarks(tmp_path)
    (tmp_path / "link.json").symlink_to(write(document()))
    with pytest.raises(ResultError, match="cannot be read"):
        read_benchmarks(tmp_path / "link.json")


def pair(write, old, new, **fields):
    """Return the one change between two files of one ratio each."""
    files = []
    for name, ratio in (("old", old), ("new", new)):
        files.append(read_benchmarks(write(document(an_entry(ratios={"r": ratio | fields})), f"{name}.json")))
    (change,) = compare_benchmarks(*files, allowed=0.05).changes
    return change


@pytest.mark.parametrize(
    ("old", "new", "better", "verdict"),
    [
        (a_ratio(1.00), a_ratio(1.10), "lower", "worse"),
        (a_ratio(1.10), a_ratio(1.00), "lower", "better"),
        (a_ratio(1.00), a_ratio(1.04), "lower", "same"),  # within what is allowed
        (a_ratio(1.00, spread=0.2), a_ratio(1.10, spread=0.2), "lower", "undecided"),  # within the spread
        (a_ratio(10.0), a_ratio(9.0), "higher", "worse"),
        (a_ratio(9.0), a_ratio(10.0), "higher", "better"),
        (a_ratio(10.0, spread=2), a_ratio(9.0, spread=2), "higher", "undecided"),
        (a_ratio(1.00), a_ratio(1.10, rounds=2), "lower", "unjudged"),
        (a_ratio(-0.02), a_ratio(3.0), "lower", "worse"),  # a delay that could not be measured, and now can
        (a_ratio(0.0), a_ratio(0.0), "lower", "same"),
    ],
)
def test_a_ratio_is_worse_beyond_what_is_allowed_and_outside_of_the_spread(old, new, better, verdict, write):
    assert pair(write, old | {"better": better}, new | {"better": better}).verdict == verdict


def a_file(better, quartiles):
    q1, median, q3 = sorted(quartiles)
    ratio = Ratio(name="r", of="a / b", median=median, q1=q1, q3=q3, rounds=7, better=better, bar=None)
    entry = Benchmark(name="b", group=None, seconds={}, ratios=(ratio,), growth=(), info={})
    return BenchmarkFile(datetime="", commit=None, machine={}, benchmarks=(entry,))


positive = st.lists(st.integers(1, 10**6).map(lambda n: n / 1000), min_size=3, max_size=3)


def verdict(old, new, better):
    (change,) = compare_benchmarks(a_file(better, old), a_file(better, new), allowed=0.05).changes
    return change.verdict


@given(old=positive, new=positive)
def test_turning_a_ratio_over_turns_no_verdict(old, new):
    """a / b of 1.0 to 1.1, lower better, is b / a of 1.0 to 0.909, higher better."""
    exact = [abs(sorted(new)[1] / sorted(old)[1] - f) > 1e-9 for f in (1.05, 1 / 1.05)]
    assume(all(exact))
    assert verdict(old, new, "lower") == verdict([1 / x for x in old], [1 / x for x in new], "higher")


@given(old=positive, new=positive, better=st.sampled_from(["lower", "higher"]))
def test_what_is_worse_one_way_is_better_the_other(old, new, better):
    opposite = {"worse": "better", "better": "worse", "same": "same", "undecided": "undecided"}
    assert verdict(new, old, better) == opposite[verdict(old, new, better)]


@given(one=positive, better=st.sampled_from(["lower", "higher"]))
def test_a_file_is_no_worse_than_itself(one, better):
    assert verdict(one, one, better) == "same"


@given(old=positive, new=positive, better=st.sampled_from(["lower", "higher"]))
def test_a_median_within_the_old_quartiles_is_never_worse(old, new, better):
    assume(min(old) <= sorted(new)[1] <= max(old))
    within = abs(sorted(new)[1] - sorted(old)[1]) <= 0.04 * min(sorted(new)[1], sorted(old)[1])
    assert verdict(old, new, better) in (("same",) if within else ("same", "undecided"))


@pytest.mark.parametrize(
    ("new", "verdict"),
    [
        (a_ratio(1.6, low=1.54, high=1.7), "worse"),
        (a_ratio(1.6, low=1.52, high=1.7), "undecided"),
        (a_ratio(1.4, low=1.3, high=1.46), "better"),
        (a_ratio(1.4, low=1.3, high=1.48), "undecided"),
        (a_ratio(1.53, low=1.53, high=1.53), "same"),
        (a_ratio(1.6, spread=0.05), "worse"),
        (a_ratio(1.6, spread=0.1), "undecided"),
    ],
)
def test_intervals_decide_and_quartiles_only_where_a_file_has_none(new, verdict, write):
    change = pair(write, a_ratio(1.5, spread=0.02, low=1.47, high=1.53), new)
    assert change.verdict == verdict


def test_ratios_of_one_file_only_are_new_or_gone_and_warned_about(write):
    old = read_benchmarks(write(document(an_entry(ratios={"kept": a_ratio(), "left": a_ratio()})), "old.json"))
    ratios = {"kept": a_ratio(), "came": a_ratio()}
    comparison = compare_benchmarks(old, read_benchmarks(write(document(an_entry(ratios=ratios)), "new.json")), 0.05)
    assert {c.ratio: c.verdict for c in comparison.changes} == {"kept": "same", "left": "gone", "came": "new"}
    assert comparison.warnings == (
        "not in the new file: test_it twin: left",
        "not in the old file: test_it twin: came",
    )
    assert (comparison.shared, comparison.judged) == (1, 1)


@pytest.mark.parametrize("other", [{"of": "steps / step"}, {"better": "higher"}])
def test_a_ratio_of_something_else_is_not_compared_though_it_has_the_name(other, write):
    old, new = (
        read_benchmarks(write(document(an_entry(ratios={"r": a_ratio() | own})), f"{len(own)}.json"))
        for own in ({}, other)
    )
    assert sorted(c.verdict for c in compare_benchmarks(old, new, 0.05).changes) == ["gone", "new"]


@pytest.mark.parametrize(
    ("path", "new", "warning"),
    [
        (("cpu", "brand_raw"), "two", "cpu.brand_raw was one, is two"),
        (("cpu", "count"), 4, "cpu.count was 2, is 4"),
        (("python_version",), "3.12.1", "python_version was 3.11.7, is 3.12.1"),
        (("versions", "jax"), "0.11.0", "versions.jax was 0.10.2, is 0.11.0"),
        (("versions", "torch"), "2.13.0", "versions.torch was nothing, is 2.13.0"),
        (("torch",), {"threads": 2}, "torch.threads was nothing, is 2"),
        (("jax",), {"devices": ["cpu:0"]}, "jax.devices was nothing, is ['cpu:0']"),
        (("thread_settings",), {"OMP_NUM_THREADS": "1"}, "thread_settings was nothing, is {'OMP_NUM_THREADS': '1'}"),
    ],
)
def test_another_machine_is_warned_about_and_a_host_name_is_not(path, new, warning, write):
    before = document(an_entry(ratios={"r": a_ratio()}))
    after = planted(planted(before, ("machine_info", *path), new), ("machine_info", "node"), "host")
    files = [read_benchmarks(write(value, name)) for value, name in ((before, "old.json"), (after, "new.json"))]
    assert compare_benchmarks(*files, 0.05).warnings == (f"the machines differ: {warning}",)
