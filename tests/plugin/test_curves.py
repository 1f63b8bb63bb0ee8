"""Baseline curves: what passes, what does not, and what cannot be judged."""

import json
import math

import numpy as np
import pytest

from parity.errors import SpecError
from parity.pytest_plugin.curves import CurveError, check_curve
from parity.results import read_result

pytestmark = pytest.mark.breaks_first

pytest_plugins = ["pytester"]
EXACT = {"rtol": 0.0, "atol": 0.0, "test": "test_x.py::test_y"}
KEPT = '{"schema": "parity.curve/1", "versions": {"a": "1"}, "criterion": %s, "steps": [0], "values": %s}'
CURVE = [2.5, 1.0, 0.1 + 0.2, 1e-300, 5e-324]


@pytest.fixture
def baseline(tmp_path):
    path = tmp_path / "parity_curves" / "test_x" / "loss.json"
    assert check_curve(path, CURVE, update=True, **EXACT) == 5
    return path


def test_a_baseline_keeps_steps_bits_criterion_and_versions(baseline):
    kept = json.loads(baseline.read_text(encoding="utf-8"))
    assert kept["steps"] == [0, 1, 2, 3, 4]
    assert [value.hex() for value in kept["values"]] == [value.hex() for value in CURVE]
    assert kept["criterion"] == {"rtol": 0.0, "atol": 0.0}
    assert kept["versions"]["numpy"] == np.__version__
    assert kept["test"] == "test_x.py::test_y"


@pytest.mark.parametrize("values", [CURVE, tuple(CURVE), np.array(CURVE), iter(CURVE), dict(enumerate(CURVE))])
def test_the_same_curve_passes_whatever_holds_it(baseline, values):
    assert check_curve(baseline, values, update=False, **EXACT) == 5


def test_the_first_step_that_differs_is_named_with_both_values(baseline):
    other = [*CURVE[:2], math.nextafter(CURVE[2], 1), 2e-300, CURVE[4]]
    with pytest.raises(CurveError) as caught:
        check_curve(baseline, other, update=False, **EXACT)
    text = str(caught.value)
    assert text.startswith("curve 'loss' differs from its baseline first at step 2; 2 of 5 steps differ\n")
    assert f"expected  0.30000000000000004  ({CURVE[2].hex()})" in text
    assert f"got       0.3000000000000001  ({other[2].hex()})" in text
    assert "allowed: equal bits" in text
    assert str(baseline) in text
    assert len(text.splitlines()) <= 25


@pytest.mark.parametrize(
    ("rtol", "atol", "got", "passes"),
    [
        (0.125, 0.0, [2.25, 8.75], True),
        (0.125, 0.0, [2.25, 8.7], False),
        (0.0, 0.5, [2.5, 9.5], True),
        (0.0, 0.5, [2.6, 10.0], False),
        (0.125, 0.5, [2.75, 8.25], True),
        (0.125, 0.5, [2.75, 8.2], False),
        (0.125, 0.5, [2.0, math.nan], False),
        (0.125, 0.5, [2.0, math.inf], False),
    ],
)
def test_a_tolerance_is_relative_to_the_baseline_plus_absolute(tmp_path, rtol, atol, got, passes):
    criterion = {"rtol": rtol, "atol": atol, "test": "t"}
    check_curve(tmp_path / "c.json", [2.0, 10.0], update=True, **criterion)
    if passes:
        assert check_curve(tmp_path / "c.json", got, update=False, **criterion) == 2
    else:
        with pytest.raises(CurveError, match="differs from its baseline first at step"):
            check_curve(tmp_path / "c.json", got, update=False, **criterion)


@pytest.mark.parametrize(
    ("old", "new"), [(0.0, -0.0), (1.0, math.nan), (1.0, math.inf)], ids=["sign of zero", "NaN", "infinity"]
)
def test_bits_that_differ_differ(tmp_path, old, new):
    check_curve(tmp_path / "c.json", [1.0, old], update=True, **EXACT)
    with pytest.raises(CurveError, match="first at step 1; 1 of 2"):
        check_curve(tmp_path / "c.json", [1.0, new], update=False, **EXACT)


@pytest.mark.parametrize(
    ("got", "complaint"),
    [
        (CURVE[:4], "has 4 steps, its baseline 5: nothing was judged"),
        ([*CURVE, 1.0], "has 6 steps, its baseline 5: nothing was judged"),
        ([], "has no step"),
        (dict(zip((0, 1, 2, 3, 5), CURVE, strict=True)), "has step 5 where its baseline has step 4: nothing was"),
    ],
)
def test_curves_of_other_steps_are_not_judged(baseline, got, complaint):
    with pytest.raises(CurveError, match=complaint):
        check_curve(baseline, got, update=False, **EXACT)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_no_baseline_and_on_both_sides_nothing_is_judged(tmp_path, value):
    path = tmp_path / "c.json"
    with pytest.raises(CurveError, match="at step 1: this is no baseline; nothing was written"):
        check_curve(path, [1.0, value], update=True, **EXACT)
    assert not path.exists()
    check_curve(path, [1.0, 2.0], update=True, **EXACT)
    path.write_text(path.read_text("utf-8").replace("2.0]", f'"{value}"]'), encoding="utf-8")
    with pytest.raises(CurveError, match="from there on nothing can be judged"):
        check_curve(path, [1.0, value], update=False, **EXACT)
    loose = {"rtol": 0.5, "atol": 0.5, "test": "t"}
    path.unlink()
    check_curve(path, [1.0, 2.0], update=True, **loose)
    path.write_text(path.read_text("utf-8").replace("2.0]", f'"{value}"]'), encoding="utf-8")
    with pytest.raises(CurveError, match="differs from its baseline first at step"):
        check_curve(path, [1.0, 2.0], update=False, **loose)


def test_a_curve_of_zeros_is_no_baseline(tmp_path):
    with pytest.raises(CurveError, match="is 0 at every step: it shows nothing; nothing was written"):
        check_curve(tmp_path / "c.json", [0.0, -0.0], update=True, **EXACT)


def test_another_criterion_than_the_one_that_was_kept_is_an_error(baseline):
    with pytest.raises(CurveError, match=r"kept for .*'rtol': 0.0.*asks for .*'rtol': 0.5.*--parity-update"):
        check_curve(baseline, CURVE, update=False, rtol=0.5, atol=0.0, test="t")


def test_versions_that_changed_since_are_named(baseline):
    text = baseline.read_text(encoding="utf-8").replace(f'"{np.__version__}"', '"1.0"', 1)
    baseline.write_text(text, encoding="utf-8")
    with pytest.raises(CurveError, match=r"the installations differ: versions.numpy was 1.0, is "):
        check_curve(baseline, [1.0] * 5, update=False, **EXACT)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": "parity.curve/2"}',
        '{"schema": "parity.curve/1"}',
        KEPT % ('{"rtol": 0, "atol": 0}', "[]"),
        KEPT % ("1", "[1]"),
    ],
)
def test_a_baseline_that_is_damaged_is_never_a_pass(baseline, text):
    baseline.write_text(text, encoding="utf-8")
    with pytest.raises(CurveError, match="its baseline cannot be used"):
        check_curve(baseline, CURVE, update=False, **EXACT)


@pytest.mark.parametrize(
    ("values", "tolerances"),
    [
        (3.0, {}),
        ("123", {}),
        (["a"], {}),
        ([1.0], {"rtol": -1.0}),
        ([1.0], {"atol": math.nan}),
        ([1.0], {"rtol": math.inf}),
    ],
)
def test_arguments_that_cannot_be_used_are_named(baseline, values, tolerances):
    with pytest.raises(SpecError):
        check_curve(baseline, values, update=True, **(EXACT | tolerances))


KEEPS = """
    import os

    def test_keeps(parity):
        parity.curve("loss", [1.0, float(os.environ["LOSS"])])
"""


@pytest.mark.takes_seconds
def test_in_a_test_a_missing_baseline_is_red_until_it_is_written(pytester, monkeypatch):
    pytester.makepyfile(test_it=KEEPS)
    monkeypatch.setenv("LOSS", "0.5")
    path = pytester.path / "parity_curves" / "test_it" / "loss.json"
    ran = pytester.runpytest_inprocess()
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(["E*CurveError: curve 'loss' has no baseline: run with --parity-update*", f"E*{path}"])
    assert "curves.py" not in ran.stdout.str().replace("parity.pytest_plugin.curves.CurveError", "")
    ran = pytester.runpytest_inprocess("--parity-update")
    ran.assert_outcomes(passed=1)
    ran.stdout.fnmatch_lines([f"baseline written, nothing compared: {path}"])
    ran = pytester.runpytest_inprocess("--junitxml=junit.xml")
    ran.assert_outcomes(passed=1)
    assert "baseline written" not in ran.stdout.str()
    assert 'name="parity_curve" value="loss: holds, 2 steps"' in (pytester.path / "junit.xml").read_text("utf-8")
    monkeypatch.setenv("LOSS", "0.25")
    ran = pytester.runpytest_inprocess()
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(["E*curve 'loss' differs from its baseline first at step 1*", "E*0.5*", "E*0.25*"])


@pytest.mark.takes_seconds
def test_the_report_has_the_verdict_on_every_curve_that_was_judged(pytester, monkeypatch):
    pytester.makepyfile(test_it=KEEPS + "\n    def test_none(parity):\n        parity.curve('other', [1.0])\n")
    monkeypatch.setenv("LOSS", "0.5")
    pytester.runpytest_inprocess("--parity-update", "-k", "keeps", "--parity-report=report")
    assert read_result(pytester.path / "report" / "check.json").records == ()
    for loss, verdict in (("0.5", "holds"), ("0.25", "broken")):
        monkeypatch.setenv("LOSS", loss)
        pytester.runpytest_inprocess("--parity-report=report")
        records = read_result(pytester.path / "report" / "check.json").records
        assert [(r.name, r.verdict) for r in records] == [("curve loss", verdict), ("curve other", "inconclusive")]
        assert records[0].steps_compared == (2 if verdict == "holds" else 0)
        assert "differs from its baseline first at step 1" in "".join(records[0].notes) or verdict == "holds"
        assert "has no baseline" in records[1].notes[0]
        page = (pytester.path / "report" / "index.html").read_text(encoding="utf-8")
        assert "the baseline that is kept in the repository" in page


def test_a_name_is_taken_once_in_a_session_and_leads_nowhere_else(pytester):
    pytester.makepyfile("""
        import pytest

        @pytest.mark.parametrize("n", [1.0, 2.0])
        def test_twice(parity, n):
            parity.curve("loss", [n])

        @pytest.mark.parametrize("name", ["../loss", ".loss", "", "a b", "a/b"])
        def test_name(parity, name):
            parity.curve(name, [1.0])
    """)
    ran = pytester.runpytest_inprocess("--parity-update")
    ran.assert_outcomes(passed=1, failed=6)
    ran.stdout.fnmatch_lines(["E*the curve 'loss' was written by this session already*", "E*of a curve must be*"])
    assert len(list(pytester.path.rglob("*.json"))) == 1
