"""What two batches differ in is told by their numbers, and nothing is called drawn that follows the trainer's."""

import numpy as np
import pytest

import parity

MEAN, SPREAD = np.array([0.5, 0.4, 0.3])[:, None, None], np.array([0.2, 0.3, 0.4])[:, None, None]


def batch(step):
    rng = np.random.default_rng([5, step])
    image = rng.uniform(size=(4, 3, 5, 5))
    return {"image": ((image - MEAN) / SPREAD).astype(np.float32), "label": (2 * np.arange(4) + 3 * step) % 7,
            "noise": rng.standard_normal((4, 6)), "weight": rng.uniform(0.5, 2.0, 4)}  # fmt: skip


def raw(made):
    return made["image"] * SPREAD + MEAN


CHANGES = {
    "channels": (
        lambda m: {"image": ((raw(m)[:, ::-1] - MEAN) / SPREAD).astype(np.float32)},
        "scale of image: along axis 1 the port has in the order [2, 1, 0]",
    ),
    "one mean": (lambda m: {"image": ((raw(m) - 0.5) / 0.5).astype(np.float32)}, "of each index another scale"),
    "flipped": (lambda m: {"image": m["image"][..., ::-1]}, "its axis 3 in another order: [4, 3, 2, 1, 0]"),
    "clipped": (lambda m: {"image": np.clip(m["image"], -1, 1)}, "range of image: the port clips it to -1 to 1"),
    "scaled": (lambda m: {"image": m["image"] * 2}, "scale of image: the port reads 2 times the trainer's"),
    "labels": (lambda m: {"label": m["label"] + 1}, "values of label: the port's are +1 more"),
    "labels around": (lambda m: {"label": (m["label"] + 1) % 7}, "+1 more than the trainer's, modulo 7"),
    "constant": (lambda m: {"weight": np.ones(4)}, "values of weight: the port's are 1 everywhere"),
    "draws": (lambda m: {"noise": np.random.default_rng(9).standard_normal((4, 6))}, "random numbers of the step"),
    "bent": (lambda m: {"noise": np.tanh(m["noise"])}, "values of noise: the port's follow the trainer's"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_differs_is_told_by_numbers(change):
    made, said = CHANGES[change]
    first = {"batch": batch}
    second = {"batch": lambda step: batch(step) | made(batch(step))}
    found = parity.prove_port(torch=[first, second], steps=4, until="batches")
    assert (found.verdict, found.parted.name) == ("broken", "batches"), found.text()
    assert said in found.cause
    assert ("random numbers" in found.cause) == (change == "draws")
    assert "order" not in found.cause or change in ("channels", "flipped", "draws")
