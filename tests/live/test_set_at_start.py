"""Which process wrote a file, by its number or by a list that it adds itself to, is no loss; a count is one."""

import asyncio
import importlib.util
import inspect
import json
import pickle
import sqlite3
import sys
from contextlib import closing

import numpy as np
import pytest

import parity
from parity.capture.arrays import array_leaf
from parity.checks.judging.set_at_start import SetAtStart
from parity.checks.running.lines import line_leaves
from tests.corpus.rename import renamed


def train(folder, steps=12, *, kind="", lost=""):
    """Train three numbers; `kind` says what each process sets when it begins, `lost` what a resume forgets."""
    file, weights, speed, begun = folder / "state.pkl", np.ones(3), np.zeros(3), 0
    entries, own, tallies, came = [], 1, 3, np.zeros(0, np.int64)
    if file.exists():
        held = pickle.loads(file.read_bytes())
        weights, begun, entries, own = (held[key] for key in ("weights", "begun", "entries", "own"))
        own += 1
        came = np.load(folder / "of_processes.npy") if kind == "array" else came
        speed = np.zeros(3) if lost == "speed" else held["speed"]
        tallies = held["tallies"] + (lost == "tallies")
    if kind == "list":
        entries.append(begun)
    if kind == "array":
        came = np.append(came, begun)
    if kind == "table":
        with closing(sqlite3.connect(folder / "kept.db")) as table, table:
            table.execute("create table if not exists starts (key integer primary key, begun int)")
            own = table.execute("insert into starts (begun) values (?)", (begun,)).lastrowid
    drops = [*entries, begun] if begun else []
    for step in range(begun, steps):
        yield step
        speed = 0.9 * speed - 0.1 * weights
        weights = weights + speed
        tallies += step % 6 == 5
        if kind == "steps" and step == 20:  # beyond the run
            drops = [*drops, step]
        if kind in ("line", "table"):
            with (folder / "rows.jsonl").open("a") as out:
                out.write(json.dumps({"own": own, "step": step, "weight": float(weights[0])}) + "\n")
        if kind == "tally":
            (folder / "tally.json").write_text(json.dumps({"tallies": tallies}))
        if step % 4 == 3:
            added = came if kind == "array" else np.array(drops if kind == "steps" else entries, np.int64)
            np.save(folder / "of_processes.npy", added)
            state = {"weights": weights, "speed": speed, "begun": step + 1, "tallies": tallies}
            file.write_bytes(pickle.dumps(state | {"own": own, "entries": entries}))


def _checked(**options):
    scenarios = "kill" if options.get("lost") else "quick"
    return parity.resumes(train, steps=12, stop_at=9, mode="inline", scenarios=scenarios, options=options)


@pytest.mark.parametrize("kind", ["", "list", "array", "line", "table"])
def test_what_the_beginning_of_a_process_sets_is_listed(kind):
    found = _checked(kind=kind)
    assert found.verdict == "holds", found.text()
    assert any("own" in one.path or "[2]" in one.path for one in found.bookkeeping), found.text()


@pytest.mark.parametrize("kind", ["", "list", "line"])
def test_what_was_lost_is_named_before_it(kind):
    found = _checked(kind=kind, lost="speed")
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path == "speed", found.text()


def test_a_count_that_steps_change_is_none_of_the_process_though_one_higher():
    found = _checked(kind="tally", lost="tallies")
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path == "tallies", found.text()


def test_a_list_that_a_step_may_add_to_is_none_of_the_process():
    found = _checked(kind="steps")
    assert found.verdict == "broken", found.text()


async def _counted(begun, steps):
    for step in range(begun, steps):
        yield step


async def _trained(folder, steps):
    file, weights, speed, begun = folder / "state.pkl", np.ones(3), np.zeros(3), 0
    if file.exists():
        weights, speed, begun = pickle.loads(file.read_bytes())
    drops = [begun] if begun else []
    async for step in _counted(begun, steps):
        parity.mark(step)
        speed = 0.9 * speed - 0.1 * weights
        weights = weights + speed
        if step == 20:  # beyond the run
            drops = [*drops, step]
        if step % 4 == 3:
            np.save(folder / "drops.npy", np.array(drops, np.int64))
            file.write_bytes(pickle.dumps((weights, speed, step + 1)))


def train_asynchronously(folder, steps=12):
    asyncio.run(_trained(folder, steps))


def test_a_list_that_a_step_of_an_asynchronous_loop_may_add_to_is_none_of_the_process():
    found = parity.resumes(train_asynchronously, steps=12, stop_at=9, mode="inline", scenarios="kill")
    assert found.verdict == "broken", found.text()


@pytest.fixture(params=[1, 2])
def checked_renamed(request, tmp_path, monkeypatch):
    """Return what checks the trainer under random names, which says how its options are called there."""
    path = tmp_path / "begun_by_others.py"
    head = "import json\nimport pickle\nimport sqlite3\nfrom contextlib import closing\n\nimport numpy as np\n\n"
    path.write_text(renamed(head + inspect.getsource(train), request.param), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, made)
    spec.loader.exec_module(made)
    other = next(one for one in vars(made).values() if getattr(one, "__module__", "") == path.stem)
    kind_is, lost_is = list(inspect.signature(other).parameters)[2:]

    def checked(kind, lost=""):
        scenarios = "kill" if lost else "quick"
        options = {kind_is: kind, lost_is: lost}
        return parity.resumes(other, steps=12, stop_at=9, mode="inline", scenarios=scenarios, options=options)

    assert not {"own", "entries", "tallies", "kind"} & {*other.__code__.co_varnames}
    return checked


@pytest.mark.parametrize("kind", ["", "list", "array", "line", "table"])
def test_it_is_listed_whatever_it_is_called(checked_renamed, kind):
    found = checked_renamed(kind)
    assert found.verdict == "holds", found.text()
    assert len(found.bookkeeping) >= len(_checked(kind=kind).bookkeeping) > 0


@pytest.mark.parametrize(("kind", "lost"), [("", "speed"), ("list", "speed"), ("tally", "tallies"), ("steps", "")])
def test_what_was_lost_is_one_whatever_it_is_called(checked_renamed, kind, lost):
    found = checked_renamed(kind, lost)
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].expected == _checked(kind=kind, lost=lost).suspects[0].expected, found.text()


def test_an_array_in_a_file_is_a_list_by_all_of_its_numbers():
    leaves = [array_leaf("array", "", np.array(numbers)) for numbers in ([0], [0, 8], [0, 9], [0.0, 8.0])]
    known = SetAtStart(lists=frozenset({(("0",), ("0", "8"))}))
    assert [known.has(leaves[0], other) for other in leaves[1:]] == [True, False, True]


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        (["7 a {} b 0.5"] * 4, "# a 1 b #"),
        (["{} a 7 b 0.5"] * 4, "1 a # b #"),
        (["7 a {} b 0.5"] * 3, "7 a # b #"),  # too few to tell
        (["01:02:03 a {} b"] * 2, "# a 1 b"),
        (["2031-02-03 a {} b"] * 2, "# a 1 b"),
    ],
)
def test_a_line_is_known_by_the_number_that_counts_lines(lines, key):
    assert key in line_leaves("\n".join(line.format(at) for at, line in enumerate(lines, 1)), {})


def test_a_number_that_goes_up_and_down_counts_no_lines():
    took = [31, 18, 44, 12, 57, 9, 63, 20]
    found = line_leaves("\n".join(f"part {at // 4} took {ms}" for at, ms in enumerate(took)), {})
    assert sorted(key for key in found if not key.endswith("]")) == ["part 0 took #", "part 1 took #"]


def test_lines_that_a_resumed_process_wrote_again_are_known_as_before():
    lines = [f"run 1 step {at} loss {at / 8}" for at in range(6)]
    again = [*lines[:4], *(line.replace("run 1", "run 2") for line in lines[2:])]
    whole, resumed = ({key for key in line_leaves("\n".join(one), {}) if "[" not in key} for one in (lines, again))
    assert whole == resumed
