"""Loops of others that resume exactly: variables that a load has left, a condition around a part of the loss."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import parity
from parity.checks.running.folder import is_log


def leaves_a_loop_variable(folder, steps=12, fault=""):
    """The last module has two names after a resume: its place in the list, and the variable of the loop."""
    torch.manual_seed(0)
    parts = [nn.Linear(2, 3), nn.Linear(3, 1)]
    optimizer = torch.optim.Adam([p for part in parts for p in part.parameters()])
    start, file = 0, Path(folder) / "s.pt"
    if file.exists():
        saved = torch.load(file)
        for part, state in zip(parts, saved["parts"], strict=True):
            part.load_state_dict(state)
        if fault != "optimizer":
            optimizer.load_state_dict(saved["optimizer"])
        start = saved["step"]
    for step in range(start, steps):
        yield step
        loss = parts[1](parts[0](torch.full((4, 2), float(step)))).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 3 == 0:
            state = {"parts": [one.state_dict() for one in parts], "optimizer": optimizer.state_dict()}
            torch.save({**state, "step": step + 1}, file)


class Stream(torch.utils.data.IterableDataset):
    """Draws from a buffer; the length of a list decides."""

    def __init__(self):
        self.buffer, self.at = [], 0

    def __iter__(self):
        while True:
            while len(self.buffer) < 4:
                self.buffer.append(self.at)
                self.at += 1
            yield torch.tensor([float(self.buffer.pop(self.at % 3))])


def keeps_what_was_loaded(folder, steps=12, fault=""):
    """The buffer is in the loaded checkpoint too, whose variable stays."""
    torch.manual_seed(0)
    net, stream = nn.Linear(1, 1), Stream()
    optimizer = torch.optim.SGD(net.parameters(), 0.001)
    start, file = 0, Path(folder) / "s.pt"
    if file.exists():
        saved = torch.load(file)
        net.load_state_dict(saved["net"])
        start = saved["step"]
        stream.at = saved["at"]
        if fault != "buffer":
            stream.buffer = saved["buffer"]
    batches = iter(torch.utils.data.DataLoader(stream, batch_size=None))
    for step in range(start, steps):
        yield step
        loss = net(next(batches)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 3 == 0:
            state = {"net": net.state_dict(), "buffer": list(stream.buffer), "at": stream.at, "step": step + 1}
            torch.save(state, file)


def distills_under_a_condition(folder, steps=12, fault=""):
    """What a condition adds to the loss trains, and moves the statistics of the norm; a teacher is asked too."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    teacher = nn.Linear(2, 1).requires_grad_(False)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    start, file = 0, Path(folder) / "s.pt"
    if file.exists():
        saved = torch.load(file)
        net.load_state_dict(saved["net"])
        start = saved["step"]
    for step in range(start, steps):
        yield step
        x = torch.arange(8.0).reshape(4, 2) + step
        loss = net(x).pow(2).mean()
        if step > 3:
            with torch.no_grad():
                soft = teacher(x)
            loss = loss + 0.3 * (net(x) - soft).pow(2).mean()
        if step % 4 == 3 and fault == "evaluation":
            with parity.evaluation(), torch.no_grad():
                net(x)  # in training mode: it moves the statistics
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 3 == 0:
            torch.save({"net": net.state_dict(), "step": step + 1}, file)


def explores_less_and_less(folder, steps=12, fault=""):
    """The rate of exploration is NumPy's number in a run, and Python's of the same value after a load."""
    rng, table, epsilon, start, file = np.random.default_rng(0), np.zeros(4), 1.0, 0, Path(folder) / "s.json"
    if file.exists():
        saved = json.loads(file.read_text())
        table, start = np.array(saved["table"]), saved["step"]
        epsilon = epsilon if fault == "epsilon" else saved["epsilon"]
        rng.bit_generator.state = saved["rng"]
    for step in range(start, steps):
        yield step
        for _ in range(8):
            action = int(rng.integers(4)) if rng.uniform() < epsilon else int(table.argmax())
            table[action] += 0.3 * (rng.normal() - table[action])
        epsilon = np.exp(-0.2 * (step + 1))
        if (step + 1) % 3 == 0:
            state = {"table": table.tolist(), "epsilon": float(epsilon), "rng": rng.bit_generator.state}
            file.write_text(json.dumps({**state, "step": step + 1}))


CASES = [
    (explores_less_and_less, "epsilon", "epsilon"),
    (leaves_a_loop_variable, "optimizer", "optimizer.first_moment"),
    (keeps_what_was_loaded, "buffer", "data.position"),
    (distills_under_a_condition, "evaluation", "model.buffers"),
]


@pytest.mark.parametrize("train", [pytest.param(train, id=train.__name__) for train, _, _ in CASES])
def test_a_loop_that_resumes_exactly_holds(train):
    found = parity.resumes(train, steps=12, stop_at=7, mode="inline", scenarios="quick")
    assert found.verdict == "holds", found.text()


@pytest.mark.parametrize(
    ("train", "fault", "component"), [pytest.param(*case, id=case[0].__name__) for case in CASES]
)
def test_its_fault_is_found(train, fault, component):
    found = parity.resumes(train, steps=12, stop_at=7, mode="inline", scenarios="quick", options={"fault": fault})
    assert found.verdict == "broken", found.text()
    assert component in found.components[:2], found.text()


@pytest.mark.parametrize(
    ("name", "log"), [("ckpt.json", False), ("run/snapshot_4.json", False), ("metrics.json", True)]
)
def test_a_checkpoint_in_json_is_told_by_its_name(name, log):
    assert is_log(name) == log


def reads_what_was_loaded_in_a_comprehension(folder, steps=12, fault=""):
    """What was loaded keeps its name, which an inner function shares; the next save writes it anew."""
    torch.manual_seed(0)
    net = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(net.parameters())
    start, file = 0, Path(folder) / "s.pt"
    if file.exists():
        flat = torch.load(file)
        net.load_state_dict({name[2:]: flat[name] for name in flat if name.startswith("n.")})
        own = optimizer.state_dict()
        slots = ("step", "exp_avg", "exp_avg_sq")
        own["state"] = {at: {slot: flat[f"o.{at}.{slot}"] for slot in slots} for at in (0, 1)}
        if fault != "optimizer":
            optimizer.load_state_dict(own)
        start = flat["step"]
    for step in range(start, steps):
        yield step
        optimizer.zero_grad()
        net(torch.full((4, 2), float(step))).pow(2).mean().backward()
        optimizer.step()
        if (step + 1) % 3 == 0:
            flat = {f"n.{name}": value for name, value in net.state_dict().items()}
            states = optimizer.state_dict()["state"]
            flat |= {f"o.{at}.{slot}": value for at, held in states.items() for slot, value in held.items()}
            torch.save({**flat, "step": step + 1}, file)


def test_a_name_that_comprehensions_share_is_dead_where_it_is_written_first():
    train = reads_what_was_loaded_in_a_comprehension
    found = parity.resumes(train, steps=12, stop_at=7, mode="inline", scenarios="quick")
    assert found.verdict == "holds", found.text()
    found = parity.resumes(
        train, steps=12, stop_at=7, mode="inline", scenarios="kill", options={"fault": "optimizer"}
    )
    assert (found.verdict, found.components[0]) == ("broken", "optimizer.step"), found.text()
