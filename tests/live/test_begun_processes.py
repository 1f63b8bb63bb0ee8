"""What each process leaves about itself when it begins is no loss; what it counts or keeps from then on may be."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

import parity
from parity.capture import Leaf
from parity.checks.judging.further import further
from parity.checks.judging.process_start import ProcessStart
from parity.checks.running.lines import line_leaves


def _add(file: Path, line: str) -> None:
    with file.open("a") as out:
        out.write(f"{line}\n")


def beginning(folder: Path, steps: int = 12, *, leaves: str = ""):
    """Train three numbers; `leaves` says what a process leaves about itself when it begins."""
    weights, begun, file, fresh = np.ones(3), 0, folder / "state.npz", True
    resumed = file.exists()
    if resumed:
        with np.load(file) as loaded:
            weights, begun = loaded["weights"], int(loaded["step"])
        fresh = leaves == "fresh"  # lost
    journal, kept = folder / "journal.txt", []
    meta = folder / "run.json"
    if leaves == "line":
        word = "resuming" if resumed else "starting"
        _add(journal, f"at {time.time():.6f} {word} from {begun}, {time.perf_counter()} on the clock")
    elif leaves in ("key", "count"):
        said = json.loads(meta.read_text()) if resumed else {"began": time.time()}
        if resumed:
            said["came_back" if leaves == "key" else "done_since"] = time.time() if leaves == "key" else 0
        meta.write_text(json.dumps(said))
    elif leaves == "file":
        journal = folder / f"part_{len(list(folder.glob('part_*.txt')))}.txt"
        _add(journal, "begun")
    elif leaves in ("kept", "left over"):
        kept += [begun] if leaves == "kept" or not resumed else []
        np.save(folder / f"weights_{begun}.npy", weights)
    for step in range(begun, steps):
        yield step
        weights = 0.9 * weights + 0.01 * step
        took = "" if leaves in ("kept", "left over") else f" in {time.perf_counter() % 10:.2f}s"
        _add(journal, f"step {step} weight {weights[0]:.6f}{took}")
        fresh = fresh and step > 3  # nothing takes it but the text
        if leaves == "fresh":
            (folder / "about.txt").write_text(f"step: {step}\nfresh: {fresh}\n")
        if leaves == "flag":
            (folder / "about.txt").write_text(f"step: {step}\ncontinued: {str(resumed).lower()}\n")
        if leaves == "count" and resumed:
            said["done_since"] += 1
            meta.write_text(json.dumps(said))
        if step % 4 == 3:
            np.savez(file, weights=weights, step=step + 1)
            if leaves in ("kept", "left over"):
                kept.append(step + 1)
                np.save(folder / f"weights_{step + 1}.npy", weights)
                for old in kept[:-2]:
                    (folder / f"weights_{old}.npy").unlink()
                kept = kept[-2:]


@pytest.mark.parametrize("leaves", ["", "line", "key", "file", "flag"])
def test_what_a_process_leaves_about_itself_is_listed(leaves):
    found = parity.resumes(beginning, steps=12, stop_at=9, mode="inline", options={"leaves": leaves})
    assert found.verdict == "holds", found.text()


def test_a_flag_that_steps_set_and_that_was_lost_is_none_of_the_process():
    found = parity.resumes(
        beginning, steps=12, stop_at=9, mode="inline", scenarios="kill", options={"leaves": "fresh"}
    )
    assert found.verdict == "broken", found.text()
    assert any(one.path == "fresh" for one in found.suspects), found.text()


def test_what_a_resumed_process_alone_counts_is_a_difference():
    found = parity.resumes(
        beginning, steps=12, stop_at=9, mode="inline", scenarios="kill", options={"leaves": "count"}
    )
    assert found.verdict == "broken", found.text()
    assert any("done_since" in one.path for one in found.suspects), found.text()


@pytest.mark.parametrize("leaves", ["kept", "left over"])
def test_a_checkpoint_that_nobody_removes_is_a_difference_though_each_process_saves_when_it_begins(leaves):
    options = {"leaves": leaves}
    found = parity.resumes(beginning, steps=16, stop_at=10, mode="inline", scenarios="kill", options=options)
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].component == "checkpoint.retention", found.text()


@pytest.mark.parametrize(("written", "counts"), [(True, False), (False, True)])
def test_numbers_of_a_line_count_unless_the_process_began_with_it(written, counts):
    lines = line_leaves("back at 3 after 0.25\n", {})
    got = {f"log: {key}": leaf for key, leaf in lines.items()}
    at_first = frozenset((path, leaf.digest) for path, leaf in got.items() if written and leaf.kind == "line")
    begun = ProcessStart(changed=frozenset({"log"}), written=at_first)
    found = {path: counted for path, _, counted in further({}, {}, got, {"log"}, begun, {"log"})}
    assert found == {"log: back at 3 after #[0]": counts}
    whole = {path: counted for path, _, counted in further({}, {}, got, {"log"}, begun)}
    assert whole == {"log: back at 3 after #[0]": True}  # a text that is written anew may have changed since


def test_a_value_in_which_equal_beginnings_differ_is_of_the_process():
    begun = ProcessStart(changed=frozenset({"a"}), written=frozenset(), by_chance=frozenset({"a: x"}))
    leaf = Leaf("scalar", "x", "float", "1.5")
    assert begun.left("a: x", leaf)
    assert not begun.left("a: y", leaf)


@pytest.mark.parametrize(
    ("line", "key", "numbers"),
    [
        ("[0.16s] wrote s00012.npz b=0.1234@10", "[#] wrote s00012.npz b=#@10", ["0.16s", "0.1234"]),
        ("step 3 took 12ms, 5MB, 3.2it/s", "step 3 took #, #, #/s", ["12ms", "5MB", "3.2it"]),
        ("step 3 left 1m23s of 2h05m10s", "step 3 left # of #", ["1m23s", "2h05m10s"]),
        ("rate 1.5e-3 or 1e-05s at 7", "rate # or # at 7", ["1.5e-3", "1e-05s"]),
        ("layer 1a 2nd 16x16 4f2a 0.5", "layer 1a 2nd 16x16 4f2a #", ["0.5"]),
    ],
)
def test_a_quantity_with_its_unit_is_one_number_and_a_name_that_begins_with_one_is_a_word(line, key, numbers):
    found = line_leaves(line, {})
    assert key in found
    assert [leaf.digest for leaf in found.values() if leaf.kind == "number"] == numbers
