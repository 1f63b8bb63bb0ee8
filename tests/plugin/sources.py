"""Test files of somebody else, as text: pytester runs them."""

TRAINER = """
import numpy as np
import pytest


def train(folder, steps=9, save_every=3, forget=False):
    weight, momentum, start = np.zeros(4), np.zeros(4), 0
    if (folder / "state.npz").exists():
        with np.load(folder / "state.npz") as kept:
            start, weight = int(kept["step"]), kept["weight"]
            if not forget:
                momentum = kept["momentum"]
    for step in range(start, steps):
        yield step
        momentum = 0.9 * momentum + weight - np.sin(np.arange(4) + step)
        weight = weight - 0.1 * momentum
        if (step + 1) % save_every == 0:
            np.savez(folder / "state.npz", step=step + 1, weight=weight, momentum=momentum)

"""
"""A training function in NumPy that resumes exactly; with `forget`, it loses its momentum."""

GREEN = """
def test_green(parity):
    assert parity.resumes(train, steps=9, stop_at=6).verdict == "holds"

"""

RED = """
def test_red(parity):
    parity.resumes(train, steps=9, stop_at=6, options={"forget": True})

"""

CRASH = """
def never_saves(folder):
    for step in range(9):
        yield step

def test_crash(parity):
    parity.resumes(never_saves, steps=9)

"""
