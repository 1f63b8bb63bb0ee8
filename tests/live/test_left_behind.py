"""What a run leaves is evidence: files of any name, what the function returns; equal runs say what is noise."""

import csv
import json
import os
import pickle
import time
from pathlib import Path

import numpy as np
import pytest

import parity
from parity.checks.running.decoded import contents
from parity.checks.running.lines import line_leaves
from parity.errors import SpecError


def leaving(folder: Path, steps: int = 12, *, leaves: str = "", fault: str = ""):
    """Train two weights, and keep an average that is not trained; `leaves` says where it goes at the end."""
    weights, average, score, begun = np.ones(3), np.zeros(3), 0.0, 0
    file = folder / "state.npz"
    if file.exists():
        with np.load(file) as loaded:
            saved = dict(loaded)
        weights, begun = saved["weights"], int(saved["step"])
        if fault != "lost":
            average, score = saved["average"], float(saved["score"])
    for step in range(begun, steps):
        yield step
        weights = 0.9 * weights + 0.01 * step
        average = 0.5 * average + 0.5 * weights
        score += float(weights[0])
        with (folder / "log.csv").open("a") as log:
            log.write(f"{step},{weights[0]},{time.perf_counter()}\n")
        if step % 4 == 3:
            np.savez(file, weights=weights, average=average, score=score, step=step + 1)
    if leaves == "csv":
        with (folder / "weights.csv").open("w", newline="") as out:
            csv.writer(out).writerows([[value] for value in average])
    elif leaves == "json":
        (folder / "model.json").write_text(json.dumps({"model": average.tolist()}))
    elif leaves == "npy":
        np.save(folder / "average.npy", average)
    elif leaves == "pickle":
        (folder / "model.bin").write_bytes(pickle.dumps({"score": score}))
    elif leaves == "text":
        (folder / "final.txt").write_text(f"score {score:.17g}\n")
    elif leaves == "bytes":
        (folder / "export").write_bytes(b"\0\1" + average.tobytes())
    elif leaves == "returned":
        return {"average": average}
    elif leaves == "history":
        return list(range(begun, steps))
    elif leaves == "start":
        (folder / "run.json").write_text(json.dumps({"began_at": begun, "pid": os.getpid(), "clock": time.time()}))
    return None


WAYS = ("csv", "json", "npy", "pickle", "text", "bytes", "returned")


@pytest.mark.parametrize("leaves", WAYS)
def test_what_reaches_a_file_or_the_returned_value_is_a_loss(leaves):
    options = {"leaves": leaves, "fault": "lost"}
    found = parity.resumes(leaving, steps=12, stop_at=11, mode="inline", scenarios="kill", options=options)
    assert found.verdict == "broken", found.text()
    assert {"average", "score"} & {one.path.partition("[")[0] for one in found.suspects}, found.text()


@pytest.mark.parametrize("leaves", [*WAYS, "history", "start", ""])
def test_the_same_loop_without_a_loss_holds(leaves):
    options = {"leaves": leaves}
    found = parity.resumes(leaving, steps=12, stop_at=11, mode="inline", scenarios="quick", options=options)
    assert found.verdict == "holds", found.text()


def test_what_reaches_nothing_is_listed_and_said_in_the_first_line():
    """No save comes after the resume: an average that feeds nothing but itself is gone, and nobody has missed it."""
    found = parity.resumes(leaving, steps=12, stop_at=9, mode="inline", scenarios="kill", options={"fault": "lost"})
    assert found.verdict == "broken", found.text()  # the checkpoint of step 12 holds it
    found = parity.resumes(leaving, steps=11, stop_at=9, mode="inline", scenarios="kill", options={"fault": "lost"})
    assert found.verdict == "holds", found.text()
    assert "average" in {one.path for one in found.bookkeeping}
    assert "differ (bookkeeping)" in found.text().splitlines()[0]


def test_what_is_meant_is_not_judged_and_its_reason_is_shown():
    options = {"leaves": "json", "fault": "lost"}
    ignore = dict.fromkeys(("average", "model.json", "score"), "made anew on purpose")
    ignore |= {"state.npz: average": "as above", "state.npz: score": "as above"}
    found = parity.resumes(
        leaving, steps=12, stop_at=11, mode="inline", scenarios="kill", options=options, ignore=ignore
    )
    assert found.verdict == "holds", found.text()
    assert "not judged: model.json (made anew on purpose)" in found.text()


@pytest.mark.parametrize(("ignore", "message"), [({"x": ""}, "needs a reason"), ({"": "why"}, "the pattern ''")])
def test_what_is_meant_needs_a_pattern_and_a_reason(ignore, message):
    with pytest.raises(SpecError, match=message):
        parity.resumes(leaving, steps=12, stop_at=11, mode="inline", ignore=ignore)


def test_a_name_that_no_value_has_is_said():
    found = parity.resumes(leaving, steps=12, stop_at=11, mode="inline", scenarios="kill", ignore={"tmier": "clock"})
    assert any("no value is called tmier" in note for note in found.notes)


def test_lines_of_a_log_are_equal_however_often_they_were_written():
    whole = line_leaves("step 1 loss 0.5\nstep 2 loss 0.25\n", {})
    assert line_leaves("step 1 loss 0.5\nstep 2 loss 0.9\nstep 2 loss 0.25\n", {}) == whole
    assert line_leaves("step 1 loss 0.5\nstep 2 loss 0.26\n", {}) != whole


def test_nothing_that_a_file_names_is_run(tmp_path):
    class Runs:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'ran'}",)

    (tmp_path / "file").write_bytes(pickle.dumps({"a": 1, "b": Runs()}))
    assert contents(tmp_path, [], ())["file: a"].digest == "1"
    assert not (tmp_path / "ran").exists()
