"""Reading results: what was written comes back whole; anything else gives one clear error."""

import copy
import json

import jsonschema
import pytest

from parity.errors import ResultError
from parity.results import BenchmarkFile, CheckResult, document, encode, read_result, schema
from tests.report.samples import ALL, BARE, ENVIRONMENT, RESUME, bench_written, benchmark, ratio, written

DOCUMENT = json.loads(encode(document(ALL, ENVIRONMENT)))


def test_a_document_comes_back_as_the_records_it_was_made_of(tmp_path):
    result = read_result(written(tmp_path / "check.json"))
    assert isinstance(result, CheckResult)
    assert encode(document(result.records, result.environment)) == encode(document(ALL, ENVIRONMENT))
    assert result.records[0] == RESUME
    assert result.environment == ENVIRONMENT
    assert result.verdict == "broken"


def test_every_sample_fits_the_schema():
    jsonschema.validate(DOCUMENT, schema(), cls=jsonschema.Draft202012Validator)


def test_a_document_of_an_earlier_version_without_curves_is_read(tmp_path):
    old = copy.deepcopy(DOCUMENT)
    for check in old["checks"]:
        for name in ("curves", "resolved", "digests"):
            del check[name]
    jsonschema.validate(old, schema(), cls=jsonschema.Draft202012Validator)
    (tmp_path / "check.json").write_text(json.dumps(old))
    result = read_result(tmp_path / "check.json")
    assert [record.curves for record in result.records] == [None] * len(ALL)
    assert result.records[-1] == BARE


def test_a_file_of_benchmarks_is_told_by_what_it_holds(tmp_path):
    path = bench_written(tmp_path / "b.json", benchmark("a", ratios={"ours": ratio(1.0, 1.02)}))
    assert isinstance(read_result(path), BenchmarkFile)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty: the run that was to write it did not finish"),
        (encode(DOCUMENT)[:900], "run that broke off: run it again"),
        ("[1, 2]", "expected an object, got list"),
        ("{}", "is no result: expected `schema`"),
        ('{"schema": "parity.check/9", "checks": []}', "unknown schema 'parity.check/9', this version reads"),
        ('{"schema": ["parity.check/1"]}', "unknown schema"),
        ('{"schema": "parity.check/1", "verdict": "holds"}', "no checks and no environment"),
        (
            '{"schema": "parity.check/1", "verdict": "empty", "checks": 3, "environment": {}}',
            "expected a list of checks",
        ),
        ('{"schema": "parity.check/1", "schema": "parity.check/1"}', "a name occurs twice"),
        ('{"schema": NaN}', "NaN is not JSON"),
        ("[" * 100_000, "cannot be read"),
    ],
)
def test_what_is_no_result_gives_one_clear_error(text, message, tmp_path):
    path = tmp_path / "check.json"
    path.write_text(text)
    with pytest.raises(ResultError, match=message):
        read_result(path)


def test_a_missing_file_gives_one_clear_error(tmp_path):
    with pytest.raises(ResultError, match=r"none\.json cannot be read"):
        read_result(tmp_path / "none.json")


def spoil(change):
    data = copy.deepcopy(DOCUMENT)
    change(data)
    return data


def put(*where, value):
    def change(data):
        for part in where[:-1]:
            data = data[part]
        data[where[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("verdict", value="holds"), r"verdict is 'holds', the verdict of its checks is 'broken'"),
        (put("checks", 0, "verdict", value="great"), r"checks\[0\]\.verdict: expected one of holds, broken"),
        (put("checks", 0, "verdict", value=[]), r"checks\[0\]\.verdict"),
        (put("checks", 1, "steps_compared", value="12"), r"checks\[1\]\.steps_compared: expected an integer"),
        (put("checks", 1, "steps_compared", value=True), r"checks\[1\]\.steps_compared"),
        (put("checks", 1, "steps_compared", value=10**30), r"expected an integer of 64 bits"),
        (put("checks", 0, "seconds", value="soon"), r"expected a number, or one of inf, -inf, nan, got 'soon'"),
        (put("checks", 0, "seconds", value=10**400), r"a number that fits 64 bits"),
        (put("checks", 0, "sides", value="jax"), r"checks\[0\]\.sides: expected a list"),
        (put("checks", 0, "suspects", value=["a"] * 3000), r"expected a list of at most 2000 items"),
        (put("checks", 0, "name", value="a" * 200_000), r"a text of at most 100000 characters"),
        (put("checks", 0, "extra", value=1), r"checks\[0\]: expected the fields name, spec"),
        (put("checks", 0, "verdct", value=1), r", got 'verdct'; did you mean verdict\?"),
        (put("checks", 0, "curves", "loss", value=[[1.0]]), r"checks\[0\]\.curves\.loss: expected 2 items"),
        (put("checks", 0, "curves", "steps", 0, value=1.5), r"curves\.steps\[0\]: expected an integer"),
        (
            put("checks", 0, "curves", "difference", value=[0.0]),
            r"curves\.difference: expected 12 values, one for each",
        ),
        (put("checks", 0, "curves", "lr", 1, value=[0.0]), r"curves\.lr: expected 12 values, one for each"),
        (put("checks", 0, "curves", "steps", 0, value=5), r"curves\.steps: expected steps that rise"),
        (
            put("checks", 1, "first_divergence", "got", value={"a": 1}),
            r"first_divergence\.got: expected a plain value",
        ),
        (put("checks", 0, "digests", value=["x"]), r"digests: expected an object"),
        (lambda data: data["checks"][0].pop("verdict"), r"checks\[0\]: expected a field verdict"),
        (put("checks", value=[{}] * 1001), "1001 checks, at most 1000 are read"),
        (put("checks", value=["x"]), r"checks\[0\]: expected an object, got 'x'"),
    ],
)
def test_a_field_that_is_not_what_it_should_be_is_named(change, message, tmp_path):
    path = tmp_path / "check.json"
    path.write_text(json.dumps(spoil(change)))
    with pytest.raises(ResultError, match=message):
        read_result(path)
