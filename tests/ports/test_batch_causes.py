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


def epochs(*, dropped=False, filled=False):
    """Batches of four of ten examples, which are in another order in each epoch."""

    def made(step):
        epoch, at = divmod(step, 2 if dropped else 3)
        order = np.random.default_rng([3, epoch]).permutation(10)
        rows = order[4 * at : 4 * at + 4]
        rows = np.concatenate([rows, order[: 4 - len(rows)]]) if filled else rows
        return {"x": np.arange(30.0).reshape(10, 3)[rows], "y": rows}

    return made


SIZES = {
    "left out": (
        {"dropped": True},
        {},
        "the trainer reads at step 2, after those of 4, and goes on with the next one",
    ),
    "read": ({}, {"dropped": True}, "last batch of an epoch: the trainer leaves out the incomplete batch of 2"),
    "filled": ({"filled": True}, {}, "the port fills up the incomplete batch of 2 that the trainer reads at step 2"),
}


@pytest.mark.parametrize("name", SIZES)
def test_an_incomplete_batch_is_named(name):
    there, here, said = SIZES[name]
    first, second = ({"batch": epochs(**ways)} for ways in (here, there))
    found = parity.prove_port(torch=[first, second], steps=5, until="batches")
    assert found.verdict == "broken"
    assert said in found.cause, found.cause


def test_batches_of_another_size_are_no_incomplete_ones():
    first = {"batch": lambda step: {"x": np.full((4, 3), step)}}
    second = {"batch": lambda step: {"x": np.full((2, 3), step)}}
    found = parity.prove_port(torch=[first, second], steps=5, until="batches")
    assert (found.verdict, "last batch" in found.cause) == ("broken", False)


def drawn(seed, *, of):
    def made(step):
        rng = np.random.default_rng([seed, step])
        return {"index": np.arange(4) + step, "time": rng.beta(*of, size=4)}

    return {"batch": made}


def test_draws_of_another_distribution_are_told_from_those_of_another_generator():
    first, others = drawn(1, of=(1.5, 1.0)), (drawn(1, of=(1.0, 1.5)), drawn(2, of=(1.5, 1.0)))
    found = [parity.prove_port(torch=[first, other], steps=5, until="batches").cause for other in others]
    assert "time is drawn from another distribution (mean " in found[0], found
    assert "in another order or by another generator" in found[1], found


def test_runs_that_have_no_more_batches_are_told_by_those_that_they_have():
    def until(made, steps):
        def batch(step):
            if step >= steps:
                raise IndexError("no such batch")
            return made["batch"](step)

        return {"batch": batch}

    first, second = (until(drawn(seed, of=(1.5, 1.0)), 5) for seed in (1, 2))
    found = parity.prove_port(torch=[first, second], steps=5, until="batches")
    assert (found.verdict, "time" in found.cause) == ("broken", True)
    first, second = (until({"batch": epochs(dropped=at)}, 3) for at in (False, True))
    found = parity.prove_port(torch=[first, second], steps=3, until="batches")
    assert found.cause == "batches of another size: the trainer reads 2 examples at step 2, and 4 at all before"
