"""Addresses of objects in files: nothing is lost by them, whether two runs have the same one or not."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity


class Net:
    def __init__(self) -> None:
        self.w, self.v = np.zeros(3), np.zeros(3)


def described(folder: Path, form: str, lost: bool = False) -> Iterator[int]:
    net, step, file = Net(), 0, folder / "state.pkl"
    resumed = file.exists()
    if resumed:
        net.w, net.v, step = pickle.loads(file.read_bytes())
    # two equal runs have the same address by chance, the resumed one another
    text = f"<Net object at {'0x7f0000000000' if resumed else '0x7f1111111111'}> {1 if resumed and lost else 0}"
    while step < 16:
        yield step
        net.v = 0.9 * net.v + net.w - np.sin(step * np.arange(3))
        net.w = net.w - 0.1 * net.v
        step += 1
        if step % 4 == 0:
            file.write_bytes(pickle.dumps((net.w, net.v, step)))
            document = json.dumps({"step": step, "net": text}) if form == "json" else f"step {step} {text}\n"
            (folder / "about.txt").write_text(document)


@pytest.mark.parametrize("form", ["json", "text"])
def test_an_address_in_a_file_is_no_evidence_and_what_stands_beside_it_is(form: str) -> None:
    def verdict(**options: Any) -> str:
        options = {"form": form, **options}
        return parity.resumes(
            described, steps=16, stop_at=10, mode="inline", scenarios="kill", options=options
        ).verdict

    assert (verdict(), verdict(lost=True)) == ("holds", "broken")
