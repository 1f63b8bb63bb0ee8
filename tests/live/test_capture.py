"""What the capture of live state sees, by kind; and that it changes nothing."""

import copy
import itertools
import random
import sys
import zlib
from collections import OrderedDict, deque, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parity.capture import StateSnapshot, Walk, capture, component_from_name, register, scopes_of
from parity.capture.liveness import live_names
from parity.errors import SpecError

pytestmark = pytest.mark.breaks_first

Point = namedtuple("Point", "x y")


def see(**values: Any) -> StateSnapshot:
    walk = Walk({"/tmp/run": "FOLDER"})
    for name, value in values.items():
        walk.root(name, value)
    return walk.finish()


@dataclass
class State:
    step: int
    weights: np.ndarray[Any, Any]


class Slotted:
    __slots__ = ("best", "unset")

    def __init__(self) -> None:
        self.best = 3.0


def test_scalars_are_leaves_with_their_text() -> None:
    leaves = see(step=3, rate=0.5, name="adam", nothing=None, flag=True).leaves
    assert {p: (leaf.kind, leaf.digest) for p, leaf in leaves.items()} == {
        "step": ("int", "3"),
        "rate": ("float", "0.5"),
        "name": ("str", "'adam'"),
        "nothing": ("NoneType", "None"),
        "flag": ("bool", "True"),
    }


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": 1}, "v.a"),
        ({3: 1}, "v[3]"),
        ([1], "v[0]"),
        ((1,), "v[0]"),
        (deque([1]), "v[0]"),
        (OrderedDict(a=1), "v.a"),
        (Point(1, 2), "v.x"),
        (State(1, np.zeros(2)), "v.step"),
        (SimpleNamespace(a=1), "v.a"),
    ],
)
def test_containers_and_objects_are_walked(value: Any, path: str) -> None:
    assert see(v=value).leaves[path].digest == "1"


def test_slots_are_seen_and_one_that_is_not_set_is_none() -> None:
    assert see(v=Slotted()).leaves["v.best"].digest == "3.0"


def test_arrays_differ_by_one_bit_shape_dtype_and_order() -> None:
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    flipped = value.copy()
    flipped.view(np.uint8)[0, 0] ^= 1
    others = [flipped, value.reshape(3, 2), value.astype(np.float64), np.asfortranarray(value)]
    leaf = see(v=value).leaves["v"]
    assert leaf.same(see(v=value.copy()).leaves["v"])
    assert [leaf.same(see(v=other).leaves["v"]) for other in others] == [False] * 4


def test_a_view_with_gaps_equals_its_copy() -> None:
    value = np.arange(12.0).reshape(3, 4)[:, ::2]
    assert see(v=value).leaves["v"].same(see(v=np.ascontiguousarray(value)).leaves["v"])


def test_one_memory_under_two_names_is_an_alias() -> None:
    value = np.zeros(3)
    leaves = see(a=value, b=value, c=value.copy()).leaves
    assert (leaves["b"].role, leaves["b"].digest, leaves["c"].role) == ("alias", "a", "array")


def test_cycles_end() -> None:
    value: list[Any] = []
    value.append(value)
    assert see(v=value).leaves["v[0]"].role == "alias"


@pytest.mark.parametrize(
    "make",
    [
        lambda: random.Random(3),
        lambda: np.random.default_rng(3),
        lambda: np.random.RandomState(3),
        lambda: np.random.PCG64(3),
    ],
)
def test_generators_are_streams_and_a_draw_shows(make: Any) -> None:
    generator = make()
    before = see(rng=generator).leaves["rng"]
    assert before.role == "stream"
    assert before.same(see(rng=generator).leaves["rng"])
    draw = getattr(generator, "random", None) or getattr(generator, "random_raw", None) or generator.rand
    draw()
    assert not before.same(see(rng=generator).leaves["rng"])


def batches(data: list[int]) -> Iterator[int]:
    for epoch in range(3):
        for item in data:
            yield item + epoch


ITERATORS = {
    "generator": lambda: batches([1, 2, 3]),
    "list": lambda: iter([1, 2, 3, 4]),
    "range": lambda: iter(range(9)),
    "enumerate": lambda: enumerate([5, 6, 7]),
    "zip": lambda: zip([1, 2, 3], [4, 5, 6], strict=True),
    "map": lambda: map(str, [1, 2, 3]),
    "islice": lambda: itertools.islice([1, 2, 3, 4], 1, None),
    "cycle": lambda: itertools.cycle([1, 2]),
    "chain": lambda: itertools.chain([1, 2], [3]),
    "count": lambda: itertools.count(5),
    "array": lambda: iter(np.arange(4)),
    "dict": lambda: iter({1: 2, 3: 4}),
}


@pytest.mark.parametrize("kind", ITERATORS)
def test_the_position_of_an_iterator_is_seen_and_looking_does_not_advance_it(kind: str) -> None:
    twin, seen = ITERATORS[kind](), ITERATORS[kind]()
    before = see(it=seen).leaves
    assert before == see(it=seen).leaves
    assert next(twin) == next(seen)
    assert before != see(it=seen).leaves
    assert next(twin) == next(seen)


def test_looking_changes_no_generator() -> None:
    rng = np.random.default_rng(0)
    twin = copy.deepcopy(rng)
    see(rng=rng)
    assert rng.random() == twin.random()


def loop(values: list[float]) -> Iterator[int]:
    total, best = 0.0, 9.0
    for step, value in enumerate(values):
        yield step
        loss = value * 2
        total += loss
        if loss < best:
            best = loss


def test_a_variable_that_is_written_before_it_is_read_is_dead() -> None:
    generator = loop([3.0, 2.0, 1.0])
    next(generator)
    next(generator)
    snapshot = capture(scopes_of(generator))
    assert snapshot.dead == {"step", "loss", "values"}
    assert snapshot.leaves["total"].digest == "6.0"
    assert snapshot.is_dead("loss")
    assert not snapshot.is_dead("losses")


def test_the_iterators_of_the_loops_are_seen() -> None:
    generator = loop([3.0, 2.0, 1.0])
    next(generator)
    assert capture(scopes_of(generator)).leaves["for[0].count"].digest == "1"


def test_the_folder_is_hidden() -> None:
    assert see(path="/tmp/run/state.pt").leaves["path"].digest == "'FOLDER/state.pt'"


def test_what_has_no_attributes_and_no_state_is_listed_as_not_seen() -> None:
    assert see(v=zlib.compressobj()).unseen == {"v": "zlib.Compress"}


def test_an_object_that_shows_its_state_is_asked() -> None:
    class Asked:
        __slots__ = ()

        def state_dict(self) -> dict[str, int]:
            return {"position": 4}

    assert see(v=Asked()).leaves["v.state_dict().position"].digest == "4"


def test_a_kind_that_is_registered_by_name_or_class_is_used() -> None:
    class Meter:
        pass

    register(Meter, lambda walk, path, meter: walk.leaf(f"{path}.total", 7, "meter"))
    assert see(v=Meter()).leaves["v.total"].component == "meter"
    with pytest.raises(SpecError, match="kind: must be a class"):
        register("Meter", lambda walk, path, meter: None)
    with pytest.raises(SpecError, match="visit: must be a function"):
        register(Meter, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "component"),
    [
        ("self.best_accuracy", "best"),
        ("patience_left", "best"),
        ("ema.shadow['head.weight']", "ema"),
        ("self.epoch", "data.position"),
        ("loader.cursor", "data.position"),
        ("opt_state[0].mu.kernel", "optimizer.first_moment"),
        ("self.optimizer.thing", "optimizer.state"),
        ("optimizer_steps", "counters.step"),
        ("state.batch_stats.mean", "model.buffers"),
        ("loss_scale", "scaler.scale"),
        ("global_step", "counters.step"),
        ("x", "data.batch"),
        ("self.thing", "self.thing"),
    ],
)
def test_components_from_names(path: str, component: str) -> None:
    assert component_from_name(path) == component


def test_what_is_not_read_again_is_dead_where_a_call_marks() -> None:
    def here() -> tuple[Any, int]:
        frame = sys._getframe(1)
        return frame.f_code, frame.f_lasti

    def loop() -> tuple[frozenset[str], int]:
        kept, done = 1, 2
        live = live_names(*here())
        done = kept
        return live, done

    assert loop() == (frozenset({"kept", "here"}), 1)  # what inner functions share counts as read
