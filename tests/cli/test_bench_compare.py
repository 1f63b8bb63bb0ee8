"""`parity compare` of two files of benchmarks is a gate: planted regressions turn it red, noise does not."""

import json

import pytest

from parity.cli import main
from tests.parity.test_bench import a_ratio, an_entry, document


@pytest.fixture
def gate(tmp_path, capsys):
    """Return a function that compares two sets of ratios: exit code, stdout, stderr."""

    def gate(old, new, *words, machine=None):
        paths = []
        for name, ratios in (("old", old), ("new", new)):
            value = document(*(an_entry(f"test_{key}", ratios={"twin / bare": r}) for key, r in ratios.items()))
            if name == "new" and machine:
                value["machine_info"] |= machine
            paths.append(tmp_path / f"{name}.json")
            paths[-1].write_text(json.dumps(value))
        code = main(["compare", *map(str, paths), *words])
        return code, *capsys.readouterr()

    return gate


GOOD = {"a": a_ratio(1.01), "b": a_ratio(1.2), "c": a_ratio(12, better="higher")}


def test_two_equal_files_pass(gate):
    code, out, err = gate(GOOD, GOOD, "--fail-on", "ratio:5%")
    assert (code, err) == (0, "")
    assert "0 of 3 ratios got worse by more than 5 % and outside of the spread" in out


@pytest.mark.parametrize(
    ("name", "planted"), [("a", a_ratio(1.10)), ("b", a_ratio(1.3)), ("c", a_ratio(11, better="higher"))]
)
def test_a_planted_regression_fails_and_is_named(gate, name, planted):
    code, out, _ = gate(GOOD, GOOD | {name: planted})
    assert code == 1
    (row,) = [line for line in out.splitlines() if "worse" in line and line.startswith("test_")]
    assert row.split()[0] == f"test_{name}"
    assert row.split()[-1] == "worse"
    assert out.splitlines()[out.splitlines().index(row) + 1].split() == ["twin", "/", "bare"]
    assert "1 of 3 ratios got worse" in out


def test_twenty_times_the_seconds_at_the_same_ratio_pass(gate, tmp_path):
    """Times are the machine's: a file of a slower one with the same ratios holds."""
    slow = document(an_entry("test_a", ratios={"twin / bare": GOOD["a"]}))
    slow["benchmarks"][0]["stats"] = {k: 20 * v for k, v in slow["benchmarks"][0]["stats"].items()}
    gate({"a": GOOD["a"]}, {"a": GOOD["a"]})
    (tmp_path / "new.json").write_text(json.dumps(slow))
    assert main(["compare", str(tmp_path / "old.json"), str(tmp_path / "new.json")]) == 0


def test_what_is_allowed_decides(gate):
    new = GOOD | {"a": a_ratio(1.10)}
    assert gate(GOOD, new, "--fail-on", "ratio:5%")[0] == 1
    assert gate(GOOD, new, "--fail-on", "ratio:8.5%")[0] == 1
    assert gate(GOOD, new, "--fail-on", "ratio:10%")[0] == 0


def test_noise_passes(gate):
    noisy = {"a": a_ratio(1.0, spread=0.3)}
    code, out, _ = gate(noisy, {"a": a_ratio(1.2, spread=0.3)})
    assert code == 0
    assert "+20.0%" in out
    assert " undecided" in out


def test_another_machine_and_other_sets_are_warned_about_on_stderr(gate):
    code, _, err = gate(GOOD, {"a": GOOD["a"], "d": GOOD["b"]}, machine={"python_version": "3.13.0"})
    assert code == 0
    assert err.splitlines() == [
        "parity: warning: the machines differ: python_version was 3.11.7, is 3.13.0",
        "parity: warning: not in the new file: test_b: twin / bare; test_c: twin / bare",
        "parity: warning: not in the old file: test_d: twin / bare",
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {}),
        (GOOD, {}),
        ({"a": GOOD["a"]}, {"b": GOOD["b"]}),
        ({"a": a_ratio(rounds=2)}, {"a": a_ratio(9, rounds=2)}),
    ],
)
def test_nothing_to_judge_is_5_and_never_success(gate, old, new):
    code, out, _ = gate(old, new)
    assert code == 5
    assert "nothing compared" in out


@pytest.mark.parametrize("text", ["", "{", "{}", '{"checks": []}'])
def test_what_is_no_file_of_benchmarks_is_2_and_one_line(text, tmp_path, capsys):
    paths = [tmp_path / "old.json", tmp_path / "new.json"]
    for path in paths:
        path.write_text(text)
    assert main(["compare", *map(str, paths)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"parity: error: {paths[0]}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("time:5%", "times are recorded and never judged, they are the machine's; ask for ratio:5%"),
        ("ratio:5", "must be like ratio:5%, got 'ratio:5'"),
        ("ratio:-5%", "must be like ratio:5%"),
        ("ratio:nan%", "must be like ratio:5%"),
        ("5%", "must be like ratio:5%, got '5%'"),
        ("median:5%", "must be like ratio:5%"),
    ],
)
def test_only_a_share_of_a_ratio_can_be_asked_for(word, problem, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["compare", "a.json", "b.json", "--fail-on", word])
    assert stop.value.code == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["a.json", "b.json"], ["a.json", "b.json", "--fail-on", "ratio:5%"]])
def test_the_former_spelling_names_the_command_that_does_it(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["bench", "compare", *words])
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == "parity bench compare: error: use `parity compare OLD.json NEW.json`"


HOSTILE = "x\n::error title=planted::hello\x1b[2J\ud800y"


def test_nothing_of_a_file_steers_a_terminal_or_a_job(gate, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    code, out, err = gate(GOOD | {HOSTILE: GOOD["a"]}, {HOSTILE: GOOD["a"]}, machine={"python_version": HOSTILE})
    assert code == 0
    assert "\x1b" not in out + err
    assert not [line for line in (out + err).splitlines() if line.startswith("::error")]
    first, *_, last = out.splitlines()
    assert first.startswith("::stop-commands::")
    assert last == f"::{first.removeprefix('::stop-commands::')}::"


def test_names_with_brackets_are_shown_as_they_are(gate):
    _, out, _ = gate({"it[red]x": GOOD["a"]}, {"it[red]x": GOOD["a"]})
    assert "test_it[red]x" in out
