"""`parity policy simulate` shows what a policy keeps, from a list, a file or a run; bad input is one clear error."""

import pytest

from parity.cli import main
from parity.contract import Validation, record_line
from parity.runs import RunDirectory
from parity.spec import identity_of, load
from parity.storage import append
from tests.support.small import record

RULES = ["--keep-latest", "2", "--keep-best", "1"]


def simulated(capsys, *words):
    """Return the rows of the table: (save, metric, on disk, removed), the line above and the line below."""
    assert main(["policy", "simulate", *map(str, words)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    head, last = lines[3], lines[-1]
    edges = [head.index("on disk"), head.index("removed")]
    rows = [
        (*line[: edges[0]].split(), line[edges[0] : edges[1]].strip(), line[edges[1] :].strip())
        for line in lines[4:-2]
    ]
    return rows, lines[0], last


def test_every_save_has_a_row_with_what_is_there_why_and_what_it_cost(capsys):
    rows, rules, last = simulated(capsys, "0.9,0.5,nan,-", *RULES, "--keep-every", 20, "--every", 10)
    assert rules == "larger is better; keeps the 2 latest, the best, multiples of 20"
    assert rows == [
        ("10", "0.9", "10*> latest,best", ""),
        ("20", "0.5", "10* latest,best   20> latest,every", ""),
        ("30", "nan", "10* best   20 latest,every   30> latest", ""),
        ("40", "-", "10* best   20 every   30 latest   40> latest,every", ""),
    ]
    assert last == "4 saves, at most 4 on disk; latest is 40, best is 10"


def test_removed_steps_are_named(capsys):
    rows, _, last = simulated(capsys, "0.1,0.2,0.3,0.4", "--keep-latest", 1, "--every", 10)
    assert [row[3] for row in rows] == ["", "10", "20", "30"]
    assert last == "4 saves, at most 1 on disk; latest is 40, best is 40"


def test_a_smaller_metric_may_be_better_and_time_may_keep(capsys):
    words = ["3,2,1,4,5", "--mode", "min", "--keep-latest", 1, "--every", 10]
    rows, rules, _ = simulated(capsys, *words, "--keep-seconds", 40, "--seconds-per-step", 2)
    assert rules == "smaller is better; keeps the latest, the best, one every 40 s"
    assert rows[-1][2] == "10 time   30* best,time   50> latest,time"


FILES = {
    "validations.jsonl": "".join(
        record_line(Validation(attempt=0, step=10 * n, metric="loss", value=value, loss=value)) + "\n"
        for n, value in enumerate([0.9, 0.1, float("nan"), 0.5], 1)
    ),
    "rows.jsonl": '{"step": 10, "metric": 0.1}\n{"step": 20, "metric": 0.9}\n'
    '{"step": 30, "value": null}\n{"step": 40, "value": 0.5}\n',
    "headed.csv": "step,metric\n10,0.1\n20,0.9\n30,nan\n40,0.5\n",
    "other columns.csv": "lr,Value,STEP\n1,0.1,10\n1,0.9,20\n1,,30\n1,0.5,40\n",
    "plain.csv": "10,0.1\n20,0.9\n30,-\n40,0.5\n",
    "metrics alone.csv": "0.1\n0.9\ninf\n0.5\n".replace("inf", "nan"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_may_hold_the_curve(name, tmp_path, capsys):
    path = tmp_path / name
    path.write_text(FILES[name])
    rows, _, last = simulated(capsys, path, "--keep-latest", 1, "--every", 10)
    assert [row[0] for row in rows] == ["10", "20", "30", "40"]
    assert rows[-1][2] == "20* best   40> latest"
    assert last.endswith("latest is 40, best is 20")


def test_the_metric_that_a_file_names_decides_the_mode_unless_told(tmp_path, capsys):
    path = tmp_path / "validations.jsonl"
    path.write_text(FILES[path.name])
    assert simulated(capsys, path)[1].startswith("smaller is better")
    assert simulated(capsys, path, "--mode", "max")[1].startswith("larger is better")


def test_the_last_attempt_at_a_step_counts(tmp_path, capsys):
    path = tmp_path / "validations.jsonl"
    path.write_text('{"step": 10, "value": 0.9}\n{"step": 20, "value": 0.1}\n{"step": 10, "value": 0.2}\n')
    assert [row[1] for row in simulated(capsys, path)[0]] == ["0.2", "0.1"]


def a_run(path, steps):
    spec = load("mlp-digits", None, ["save.every=10", "validate_every=20", "save.keep_latest=1", "steps=35"])
    run = RunDirectory(path)
    run.open(identity_of(spec), "torch")
    append(run.steps, [record_line(record(step, seconds=2.0)) for step in range(1, steps + 1)])
    values = {20: 0.9}
    rows = [Validation(attempt=0, step=s, metric="accuracy", value=v, loss=1.0) for s, v in values.items()]
    append(run.validations, [record_line(row) for row in rows])
    return path


def test_a_run_brings_its_saves_metrics_times_and_rules(tmp_path, capsys):
    """Saved every 10 steps and at the last; validated every 20; two seconds a step."""
    run = a_run(tmp_path / "run", 35)
    rows, rules, _ = simulated(capsys, run)
    assert rules == "larger is better; keeps the latest, the best"
    assert [row[:2] for row in rows] == [("10", "-"), ("20", "0.9"), ("30", "-"), ("35", "-")]
    assert rows[-1][2] == "20* best   35> latest"
    rows, _, _ = simulated(capsys, run, "--keep-best", 0, "--keep-seconds", 40)
    assert rows[-1][2] == "10 time   30 time   35> latest"
    rows, _, _ = simulated(capsys, run, "--keep-best", 0, "--keep-seconds", 40, "--seconds-per-step", 4)
    assert rows[-1][2] == "10 time   20* time   30 time   35> latest"


@pytest.mark.parametrize(
    ("curve", "message"),
    [
        ("nothing", "CURVE: no file or run 'nothing', and no list of metrics such as 0.5,0.7,nan,-"),
        ("0.5,x", "CURVE: metric 2: 'x' is no metric; a number, nan, inf, or - for none"),
        ({"a.jsonl": '{"step": 1}\n'}, "a.jsonl line 1 has neither `value` nor a number as `metric`: {'step': 1}"),
        ({"a.jsonl": '{"step": 1.5, "value": 1}\n'}, "a.jsonl line 1: 1.5 is no step"),
        ({"a.jsonl": "0.5\n0.7\n"}, "a.jsonl line 1: not an object; restore or remove this line; a CSV file must be"),
        ({"a.jsonl": ""}, "a.jsonl holds no metric"),
        ({"a.csv": ""}, "a.csv holds no metric"),
        ({"a.csv": "step,loss\n1,2\n"}, "a.csv must have one column `metric` or `value`, has step, loss"),
        ({"a.csv": "1,2\n3\n"}, "a.csv line 2 has 1 columns, expected 2"),
        ({"a.csv": "1,2,3\n"}, "a.csv line 1 has 3 columns, expected 2"),
        ({"a.csv": "20,1\n10,1\n"}, "CURVE: steps must increase, got 10 after 20"),
        ({"a.csv": "-1,1\n"}, "a.csv line 1: '-1' is no step"),
        ({"a.csv": "inf,1\n"}, "a.csv line 1: 'inf' is no step"),
        ({"a.csv": "1e300,1\n"}, "a.csv line 1: '1e300' is no step"),
        ({"a.csv": "1" * 5000 + ",1\n"}, "a.csv line 1: '111"),
        ({"a.jsonl": '{"step": 1e999, "value": 1}\n'}, "a.jsonl line 1: inf is no step"),
        ({"a.jsonl": '{"step": 1' + "0" * 400 + ', "value": 1}\n'}, "a.jsonl line 1: 1000"),
        ({"a.jsonl": '{"step": 1, "value": 1' + "0" * 400 + "}\n"}, "a.jsonl line 1: 1000"),
        ({"run": None}, "run holds no run: it has no spec.toml"),
    ],
)
def test_what_is_no_curve_is_one_line_that_says_why(curve, message, tmp_path, capsys):
    if isinstance(curve, dict):
        ((name, text),) = curve.items()
        path = tmp_path / name
        path.mkdir() if text is None else path.write_text(text)
        curve = str(path)
    assert main(["policy", "simulate", curve]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("parity: error: ")
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.parametrize("name", ["huge.csv", "huge.jsonl"])
def test_a_file_too_long_to_be_a_curve_is_not_read(name, tmp_path, capsys):
    with (tmp_path / name).open("wb") as file:
        file.truncate(1 << 40)
    assert main(["policy", "simulate", str(tmp_path / name)]) == 2
    assert f"{name} is longer than 67,108,864 bytes" in capsys.readouterr().err


@pytest.mark.takes_seconds
def test_a_list_of_metrics_may_be_longer_than_a_file_name(capsys):
    rows, _, _ = simulated(capsys, ",".join(["0.5"] * 2000))
    assert len(rows) == 2000


def test_a_run_without_a_save_yet_says_so(tmp_path, capsys):
    assert main(["policy", "simulate", str(a_run(tmp_path / "run", 9))]) == 2
    assert "has not reached its first save (every 10 steps)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [[], ["--keep-latest", "0"], ["--keep-best", "-1"], ["--keep-seconds", "nan"], ["--keep-every", "-2"]],
)
def test_a_rule_that_cannot_be_is_usage(words, capsys):
    command = ["policy", "simulate", "0.5", *words] if words else ["policy", "simulate"]
    with pytest.raises(SystemExit) as stop:
        main(command)
    assert stop.value.code == 2
    assert "usage: parity policy simulate" in capsys.readouterr().err
