"""The progress of `parity check`: which check, side, step of steps, checks done, time left; never on stdout."""

import io
import json
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from parity.checks.progress import last_step
from parity.cli import check_progress, main
from parity.cli.check_progress import CheckProgress
from parity.cli.streams import StreamLost
from parity.reference import SuiteRequest, list_tasks, read_durations, run_checks, write_durations
from parity.sides import load as load_side
from parity.spec import load

SPEC = load("mlp-digits", None, ["model.hidden=[8]", "execution.chunk=2"])


def request(tmp_path, *checks, sides=("jax", "torch")):
    return SuiteRequest(
        checks=checks, specs=[SPEC], sides={name: load_side(name) for name in sides}, steps=20, workdir=tmp_path
    )


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(stream):
    """Return the lines of a terminal after carriage returns, and those that were rewritten on the way."""
    return [part.rstrip() for line in stream.getvalue().split("\n") for part in line.split("\r") if part.strip()]


def test_a_line_names_check_side_step_and_what_is_done(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    monkeypatch.setattr(check_progress, "REDRAW_SECONDS", 0.01)
    monkeypatch.setenv("COLUMNS", "120")
    tasks = list_tasks(request(tmp_path, "resume", "twins"))
    with CheckProgress(tasks) as progress:
        progress.begin(1)
        progress.step("reference run,", 83, 200)
        time.sleep(0.1)
        progress.end("resume mlp-digits float32 (torch): holds")
    lines = shown(stream)
    assert lines[0] == "check 2 of 3: resume mlp-digits float32 (torch), reference run, step 83 of 200, 0 s so far"
    assert "resume mlp-digits float32 (torch): holds" in lines
    assert "\x1b" not in stream.getvalue(), "NO_COLOR forbids escape codes, and none are needed"
    assert all(len(part) < 120 for part in lines)
    assert "left" not in stream.getvalue(), "a first run has no estimate"


@pytest.mark.parametrize("width", [20, 40, 60, 80])
def test_a_narrow_terminal_gets_fewer_parts_and_no_number_is_cut(width, tmp_path, cache, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    monkeypatch.setattr(check_progress, "REDRAW_SECONDS", 0.01)
    monkeypatch.setenv("COLUMNS", str(width))
    with CheckProgress(list_tasks(request(tmp_path, "resume", "twins"))) as progress:
        progress.begin(2)
        progress.step("torch", 123456789, 987654321)
        time.sleep(0.1)
    first = shown(stream)[0]
    assert len(first) < width
    assert first.startswith("check 3 of 3")
    assert ("123456789 of 987654321" in first) or "1234" not in first


def test_without_a_terminal_there_are_plain_lines_at_intervals(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    assert check_progress.LINE_SECONDS == 15.0
    monkeypatch.setattr(check_progress, "LINE_SECONDS", 0.05)
    with CheckProgress(list_tasks(request(tmp_path, "twins"))) as progress:
        progress.begin(0)
        progress.step("jax", 3, 20)
        time.sleep(0.2)
    lines = stream.getvalue().splitlines()
    assert 1 <= len(lines) <= 4
    assert set(lines) == {"check 1 of 1: twins mlp-digits float32 (jax, torch), jax step 3 of 20, 0 s so far"}
    assert "\r" not in stream.getvalue()


def test_the_time_left_is_that_of_the_last_run(tmp_path, cache, monkeypatch):
    tasks = list_tasks(request(tmp_path, "resume", "twins"))
    with CheckProgress(tasks) as progress:
        assert progress.left() is None
        for number in range(3):
            progress.begin(number)
            progress.end("holds")
    assert len(read_durations()) == 3
    write_durations(dict.fromkeys(read_durations(), 40.0))
    with CheckProgress(tasks) as progress:
        progress.begin(0)
        assert progress.left() == pytest.approx(120, abs=1)
        progress.begin(2)
        assert progress.left() == pytest.approx(40, abs=1)
        assert progress.describe()[-2] == "about 40 s left"
    other = list_tasks(replace(request(tmp_path, "resume", "twins"), steps=30))
    assert CheckProgress(other).left() is None, "another length is another duration"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": "x"}', '{"a": -1}', '{"a": 1e999}', "\x00"])
def test_a_spoilt_file_of_durations_is_no_error(text, cache):
    cache.mkdir()
    (cache / "durations.json").write_text(text)
    assert read_durations() == {}
    write_durations({"b": 2.0})
    assert read_durations() == {"b": 2.0}


def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch):
    monkeypatch.setenv("PARITY_CACHE", "/dev/null/off")
    write_durations({"b": 2.0})
    assert read_durations() == {}


def test_a_lost_stream_ends_the_checks_in_the_thread_that_runs_them(tmp_path, cache, monkeypatch):
    class Lost(Terminal):
        def write(self, text):
            raise StreamLost("standard error", BrokenPipeError(32, "Broken pipe"))

    monkeypatch.setattr(sys, "stderr", Lost())
    monkeypatch.setattr(check_progress, "REDRAW_SECONDS", 0.01)
    progress = CheckProgress(list_tasks(request(tmp_path, "twins")))
    with progress:
        progress.begin(0)
        time.sleep(0.1)
        with pytest.raises(StreamLost):
            progress.step("jax", 1, 20)


@pytest.mark.takes_seconds
@pytest.mark.parametrize(
    ("checks", "sides"), [(("policy", "resume"), ("torch",)), (("twins", "handover"), ("jax", "torch"))]
)
def test_every_check_reports_its_steps(checks, sides, tmp_path, cache):
    asked = request(tmp_path, *checks, sides=sides)
    begun, steps = [], {}

    def on_step(what, step, of):
        assert 0 <= step <= of
        steps.setdefault(begun[-1], set()).add(what)

    run_checks(asked, lambda record: None, begun.append, on_step)
    names = [(task.name.partition(" ")[0], task.sides) for task in list_tasks(asked)]
    assert begun == list(range(len(names)))
    watched = {names[number][0]: set() for number in begun}
    for number, found in steps.items():
        watched[names[number][0]] |= found
    runs = {"reference run,", "resumed run,"}
    both = {"jax", "torch"}
    expected = {
        "policy": {"case,"},
        "resume": watched.get("resume", set()) & runs,
        "twins": both,
        "handover": both,
    }
    assert watched == {name: expected[name] for name in checks}
    assert all(watched.values())


def test_the_last_step_is_that_of_the_last_complete_line(tmp_path):
    file = tmp_path / "steps.jsonl"
    assert last_step(file) == 0
    file.write_text("".join(json.dumps({"step": n, "more": "x" * 50}) + "\n" for n in range(1, 300)) + '{"step": 3')
    assert last_step(file) == 299
    file.write_text("nothing\n")
    assert last_step(file) == 0


@pytest.mark.takes_seconds
def test_json_has_stdout_for_itself(tmp_path, cache, monkeypatch, capsys):
    monkeypatch.setattr(check_progress, "LINE_SECONDS", 0.01)
    words = ["check", "twins", "--spec", "mlp-digits", "--steps", "20", "--set", "model.hidden=[8]", "--json"]
    assert main(words) in (0, 1, 4)
    out, err = capsys.readouterr()
    assert json.loads(out)["schema"] == "parity.check/1"
    assert "check 1 of 1: twins mlp-digits float32 (jax, torch)" in err
    assert "check 1 of 1" not in out


@pytest.mark.takes_seconds
def test_a_first_run_in_a_log_and_the_next_one_print_the_same_on_stdout(tmp_path, cache):
    line = [sys.executable, "-m", "parity", "check", "handover", "--spec", "mlp-digits", "--sides", "torch"]
    runs = [subprocess.run(line, capture_output=True, text=True) for _ in range(2)]
    assert {run.returncode for run in runs} == {4}
    assert "handover mlp-digits float32 (torch): inconclusive" in runs[1].stderr
