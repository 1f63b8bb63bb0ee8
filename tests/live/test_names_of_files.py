"""Files with times in their names, and folders of one process: neither hides what was lost."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.checks.judging.files import is_within, own_folders
from parity.results import Resumption


def train(
    folder: Path, lost: bool = False, folders: str = "", timed: bool = False, log: bool = False
) -> Iterator[int]:
    """Keep two checkpoints; the queue of them is what may be lost. Each process may log into a folder of its own."""
    w, start, kept = np.ones(3), 0, []
    found = sorted(folder.glob("step_*.json"))
    if found:
        saved = json.loads(found[-1].read_text())
        w, start = np.array(saved["w"]), saved["step"]
        kept = [] if lost else found
    if folders:
        (mine := folder / f"{folders}{len(list(folder.glob(f'{folders}*')))}").mkdir(parents=True)
        (mine / "about.txt").write_text("made by one process")
    if log:
        (folder / f"log-{time.time_ns()}.txt").write_text(f"from step {start}")
    for step in range(start, 18):
        yield step
        w = 0.9 * w + 0.2
        if step % 3 == 2:
            kept.append(folder / f"step_{step + 1:03d}{f'_{time.time_ns()}' if timed else ''}.json")
            kept[-1].write_text(json.dumps({"w": w.tolist(), "step": step + 1}))
            while len(kept) > 2:
                kept.pop(0).unlink()


OPTIONS: list[dict[str, Any]] = [
    {"folders": "version_"}, {"folders": "logs/version_"}, {"timed": True}, {"log": True},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS)
def test_a_lost_queue_leaves_files_and_a_folder_or_name_of_its_own_is_no_loss(options: dict[str, Any]) -> None:
    def verdict(**more: Any) -> Resumption:
        given = {**options, **more}
        return parity.resumes(train, steps=18, stop_at=11, mode="inline", scenarios="kill", options=given)

    clean = verdict()
    assert clean.verdict == "holds", clean.text()
    found = verdict(lost=True)
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].component == "checkpoint.retention"


def test_a_folder_is_a_processs_own_where_no_other_wrote() -> None:
    assert own_folders(["a/b/c.txt", "d.txt"], ["a/x/y.txt"]) == {"a/b"}
    assert own_folders(["a/x/z.txt"], ["a/x/y.txt"]) == set()
    assert is_within("logs/version_0/m.csv", {"logs/version_1"})
    assert not is_within("logs/other/m.csv", {"logs/version_1"})
