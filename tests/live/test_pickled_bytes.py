"""Bytes that are a pickle count by what they hold: which of their equal parts are one object is nothing lost."""

import io
import os
import pickle

import numpy as np
import pytest

import parity
from parity.capture import Walk
from parity.capture.pickled import digest_of_pickle


class Model:
    def __init__(self, seed):
        self.rng, self.weights, self.best = (
            np.random.default_rng(seed),
            np.zeros(3),
            {"a": (1, 2.5), "b": [None, True]},
        )


VALUES = [
    {"a": 1, "b": [1, 2, (3.0, "x")]},
    {1, 2, 3},
    frozenset("ab"),
    Model(1),
    np.arange(5.0),
    b"x" * 300,
    bytearray(9),
]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("value", VALUES, ids=lambda one: type(one).__name__)
def test_what_went_through_a_pickle_is_equal(value, protocol):
    first = pickle.dumps(value, protocol)
    again = pickle.dumps(pickle.loads(first), protocol)
    assert digest_of_pickle(first) == digest_of_pickle(again) is not None


class Collides(str):
    """Texts of one hash, of which a set gives the last that came first, or the first."""

    __slots__ = ()

    def __hash__(self):
        return 1


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("kind", [set, frozenset])
def test_members_of_a_set_have_no_order(kind, protocol):
    members = [Collides("a"), Collides("b"), Collides("c")]
    first, other = (pickle.dumps([kind(each)], protocol) for each in (members, members[::-1]))
    assert first != other
    assert digest_of_pickle(first) == digest_of_pickle(other) is not None
    fewer = pickle.dumps([kind(members[:2])], protocol)
    assert digest_of_pickle(fewer) != digest_of_pickle(first)
    assert digest_of_pickle(pickle.dumps([members], protocol)) != digest_of_pickle(first)


def test_a_dtype_that_is_one_object_is_as_good_as_two():
    value = [np.zeros(2), np.ones(2)]
    first, again = pickle.dumps(value), pickle.dumps([pickle.loads(pickle.dumps(one)) for one in value])
    assert first != again
    assert digest_of_pickle(first) == digest_of_pickle(again)


@pytest.mark.parametrize("other", [[1, 2], [2, 1, 3], [1, 2, 3.0], (1, 2, 3), [1, 2, "3"], [1, 2, -3], [1, 2, [3]]])
def test_any_other_content_is_another(other):
    assert digest_of_pickle(pickle.dumps([1, 2, 3])) != digest_of_pickle(pickle.dumps(other))


def test_a_number_of_an_array_that_is_a_bit_away_is_another():
    first, other = np.arange(5.0), np.arange(5.0)
    other[2] = np.nextafter(2.0, 3.0)
    assert digest_of_pickle(pickle.dumps(first)) != digest_of_pickle(pickle.dumps(other))


def test_what_holds_itself_has_a_digest():
    one: list = [1]
    one.append(one)
    other: list = [2]
    other.append(other)
    first, second = (digest_of_pickle(pickle.dumps(each)) for each in (one, other))
    assert first is not None is not second != first


def nested(outer):
    inner: list = ["inner"]
    whole: list = ["whole", inner]
    inner.append(whole if outer else inner)
    return pickle.dumps(whole)


def test_what_holds_one_that_it_is_in_is_known_from_what_holds_itself():
    assert digest_of_pickle(nested(outer=True)) == digest_of_pickle(nested(outer=True))
    assert digest_of_pickle(nested(outer=True)) != digest_of_pickle(nested(outer=False))


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"\x80\x04.", b"\x80\x04N.N.", b"\x80\x04garbage.", b"PK\x03\x04.", b"."]
)
def test_what_is_no_whole_pickle_counts_by_its_bytes(data):
    assert digest_of_pickle(data) is None


def _trained(folder, steps, *, lost=0.0, kept_as=bytes):
    """Keep the best model as bytes in a checkpoint that is one pickle."""
    file = folder / "run.pkl"
    state = (
        pickle.loads(file.read_bytes()) if file.exists() else {"model": Model(3), "at": 0, "blob": b"", "low": 9e9}
    )
    if file.exists() and lost:
        kept = pickle.loads(bytes_of(state["blob"]))
        kept.weights[0] += lost
        state["blob"] = kept_as(pickle.dumps(kept))
    for at in range(state["at"], steps):
        yield at
        model = state["model"]
        model.weights += model.rng.normal(size=3)
        loss = float((model.weights**2).sum()) + 100 * at  # the first is the best
        if loss < state["low"]:
            state["low"], state["blob"] = loss, kept_as(pickle.dumps(model))
        state["at"] = at + 1
        if state["at"] % 4 == 0 or state["at"] == steps:
            draft = file.with_suffix(".tmp")
            draft.write_bytes(pickle.dumps(state))
            os.replace(draft, file)
    (folder / "best.pkl").write_bytes(bytes_of(state["blob"]))


def bytes_of(blob):
    return blob.getvalue() if isinstance(blob, io.BytesIO) else bytes(blob)


def written(data):
    """Return a stream as `pickle.dump` leaves it: at its end."""
    stream = io.BytesIO()
    stream.write(data)
    return stream


def clean(folder, steps=16):
    yield from _trained(folder, steps)


def losing(folder, steps=16):
    yield from _trained(folder, steps, lost=1.0)


@pytest.mark.parametrize("kept_as", [bytearray, io.BytesIO, written])
def test_bytes_in_what_can_be_written_to_are_compared_likewise(kept_as):
    def holds(folder, steps=16):
        yield from _trained(folder, steps, kept_as=kept_as)

    def loses(folder, steps=16):
        yield from _trained(folder, steps, lost=1.0, kept_as=kept_as)

    found = parity.resumes(holds, steps=16, stop_at=10, mode="inline")
    assert found.verdict == "holds", found.text()
    found = parity.resumes(loses, steps=16, stop_at=10, mode="inline")
    assert (found.verdict, found.suspects[0].path) == ("broken", "state.blob"), found.text()


def test_a_place_within_a_pickle_counts_and_its_end_is_one():
    first, again = (
        pickle.dumps(one) for one in ([np.zeros(2), np.ones(2)], [*map(copied, (np.zeros(2), np.ones(2)))])
    )
    assert len(first) != len(again)
    shown = [places(written(one)) for one in (first, again)]
    assert shown[0] == shown[1] != places(io.BytesIO(first))


def copied(value):
    return pickle.loads(pickle.dumps(value))


def places(stream):
    walk = Walk({})
    walk.root("kept", stream)
    return {path: (leaf.kind, leaf.digest) for path, leaf in walk.finish().leaves.items()}


def test_a_best_model_in_bytes_is_nothing_that_is_lost():
    found = parity.resumes(clean, steps=16, stop_at=10, mode="inline")
    assert found.verdict == "holds", found.text()


def test_a_best_model_in_bytes_that_is_another_one_is_told():
    found = parity.resumes(losing, steps=16, stop_at=10, mode="inline")
    assert (found.verdict, found.suspects[0].path) == ("broken", "state.blob"), found.text()
