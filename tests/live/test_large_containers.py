"""Large containers of plain values: a vocabulary, a data set in lists, weights in a table. Each is one leaf."""

import json
import pickle
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.capture import StateSnapshot, Walk
from parity.checks.judging import Evidence, measured, suspect
from parity.results import Resumption

WORDS = 2500


def see(value: Any) -> StateSnapshot:
    walk = Walk({"/tmp/run": "FOLDER"})
    walk.root("v", value)
    return walk.finish()


def nest(depth: int, inside: Any) -> Any:
    for _ in range(depth):
        inside = [inside]
    return inside


LARGE: dict[str, Callable[[], Any]] = {  # made when they are asked for: a check looks into the module of its loop
    "dict": lambda: {f"w{i}": i for i in range(WORDS)},
    "pairs": lambda: {(i, f"{i}"): i / 7 for i in range(WORDS)},
    "rows": lambda: [["w", i, {"id": i}] for i in range(WORDS)],
    "set": lambda: {f"w{i}" for i in range(WORDS)},
    "nested": lambda: {f"w{i}": {"id": i, "pair": (i, 0)} for i in range(WORDS)},
    "Counter": lambda: Counter({f"w{i}": i for i in range(WORDS)}),
    "defaultdict": lambda: defaultdict(int, {i: i for i in range(WORDS)}),
}


@pytest.mark.parametrize("kind", LARGE)
def test_they_are_one_leaf_and_change_with_any_element(kind: str) -> None:
    value = LARGE[kind]()
    before = see(value)
    assert len(before.leaves) <= 3
    other = pickle.loads(pickle.dumps(value))
    assert see(other).leaves == before.leaves
    if isinstance(other, set):
        other.discard("w7")
    elif isinstance(other, list):
        other[7][2]["id"] += 1
    else:
        key = list(other)[7]
        other[key] = {**other[key], "id": 0} if isinstance(other[key], dict) else -other[key]
    assert not see(other).leaves["v"].same(before.leaves["v"])


def test_the_order_of_keys_says_nothing_and_their_types_do() -> None:
    words = {f"w{i}": i for i in range(WORDS)}
    assert see(words).leaves == see(dict(reversed(words.items()))).leaves
    numbers = {i: i for i in range(WORDS)}
    assert not see(numbers).leaves["v"].same(see({str(i): i for i in numbers}).leaves["v"])
    assert not see(numbers).leaves["v"].same(see({i: float(i) for i in numbers}).leaves["v"])
    assert not see({**numbers, 5: 0.0}).leaves["v"].same(see({**numbers, 5: -0.0}).leaves["v"])


@pytest.mark.parametrize("many", [3, WORDS])
@pytest.mark.parametrize("of", [lambda edge: edge, lambda edge: (edge, "a")])
def test_edges_by_their_ends_are_the_same_whichever_end_came_first(of: Callable[[Any], Any], many: int) -> None:
    edges = [of(frozenset((at, at + 8))) for at in range(many)]
    others = [of(frozenset((at + 8, at))) for at in range(many)]
    assert edges == others
    assert repr(edges) != repr(others)
    for one, other in ((set(edges), set(others)), (dict.fromkeys(edges, 1), dict.fromkeys(others, 1))):
        assert see(one).leaves == see(other).leaves
    assert see(set(edges)).leaves != see(set(edges[1:]) | {of(frozenset((0, 9)))}).leaves


def test_of_their_elements_those_are_counted_that_differ_in_more_than_the_order_of_keys() -> None:
    before = suspect(Evidence("v", "v", 3, "list[4]", "list[4]", "at the resume"), "kill")
    expected = [{"a": 1, "b": 2}, {frozenset((0, 8))}, {"a": {1}}, 4]
    got = [{"b": 2, "a": 1}, {frozenset((8, 0))}, {"a": {2}}, 4]
    (found,) = measured([before], {"v": expected}, {"v": got}, 3)
    assert (found.differing, found.expected, found.got) == (1, "[2]: {'a': {1}}", "[2]: {'a': {2}}")


def test_what_differs_between_equal_runs_is_hidden_in_them() -> None:
    files = [{f"w{i}": f"{folder}/{i}" for i in range(WORDS)} for folder in ("/tmp/run", "FOLDER")]
    assert see(files[0]).leaves == see(files[1]).leaves


def test_what_holds_an_object_or_itself_is_walked() -> None:
    rows: list[Any] = [[i] for i in range(WORDS)]
    rows[3].append(np.ones(2))
    assert "v[3][1]" in see(rows).leaves
    rows[3][1] = rows
    assert see(rows).leaves["v[3][1]"].role == "alias"
    small = {f"w{i}": i for i in range(100)}
    assert see(small).leaves["v.w7"].digest == "7"


def test_what_lies_deep_is_one_leaf_too() -> None:
    leaves = see(nest(2000, 0.5)).leaves
    assert len(leaves) < 200
    assert leaves != see(nest(2000, 0.25)).leaves


def taken(of: str) -> Callable[[Any], int]:
    kinds: dict[str, Callable[[Any], int]] = {
        "dict": lambda held: held["w3"],
        "list": lambda held: held[3][1],
        "set": lambda held: 3 * ("w3" in held),
    }
    return kinds[of]


def change(of: str, held: Any) -> None:
    if of == "set":
        held.discard("w3")
    elif of == "list":
        held[3][1] = 0
    else:
        held["w3"] = 0


MADE: dict[str, Callable[[], Any]] = {
    "dict": lambda: {f"w{i}": i for i in range(WORDS)},
    "list": lambda: [[f"w{i}", i] for i in range(WORDS)],
    "set": lambda: {f"w{i}" for i in range(WORDS)},
}


def words(folder: Path, of: str, when: str = "") -> Iterator[int]:
    rows = np.random.default_rng(0).normal(size=(7, 3))
    w, step, held, file = np.zeros(3), 0, MADE[of](), folder / "state.pkl"
    if file.exists():
        w, step = pickle.loads(file.read_bytes())
        if when == "at the resume":
            change(of, held)
    while step < 16:
        yield step
        x = rows[(step + taken(of)(held)) % 7]
        w = w - 0.1 * (x @ w - 1) * x
        step += 1
        if step == {"early": 4, "late": 12}.get(when):
            change(of, held)
        if step % 4 == 0:
            file.write_bytes(pickle.dumps((w, step)))


def judged(train: Any, **options: Any) -> Resumption:
    return parity.resumes(train, steps=16, stop_at=10, mode="inline", scenarios="kill", options=options)


@pytest.mark.parametrize("of", MADE)
def test_a_vocabulary_is_judged_and_its_element_named(of: str) -> None:
    assert judged(words, of=of, when="late").verdict == "holds"
    key = 3 if of == "list" else "w3"
    found = judged(words, of=of, when="early" if of == "dict" else "at the resume")
    assert found.verdict == "broken"
    assert found.suspects[0].path == "held"
    assert found.suspects[0].expected.startswith(f"[{key!r}]: ")
    assert found.suspects[0].amount.startswith("1 of 2,")


def counts(folder: Path, lost: str = "") -> Iterator[int]:
    """Count words, and draw the next ones by their counts."""
    rng, step, file = random.Random(0), 0, folder / "state.pkl"
    seen = {f"w{i}": 1 for i in range(WORDS)}
    w = [0.0] * 3
    if file.exists():
        w, step, state, kept = pickle.loads(file.read_bytes())
        rng.setstate(state)
        seen = seen if lost else kept
    while step < 16:
        yield step
        word = max((seen[f"w{i}"] + rng.random(), f"w{i}") for i in range(40))[1]
        seen[word] = seen.get(word, 0) + 1
        seen[f"new{step}"] = 1
        w = [0.9 * one + 0.001 * seen[word] for one in w]
        step += 1
        if step % 4 == 0:
            file.write_bytes(pickle.dumps((w, step, rng.getstate(), seen)))


def test_a_table_that_grows_is_no_record_of_the_past() -> None:
    assert judged(counts).verdict == "holds"
    found = judged(counts, lost="counts")
    assert found.verdict == "broken"
    assert found.suspects[0].path == "seen"


def weights(folder: Path, many: int, table: bool = False, lost: bool = False) -> Iterator[int]:
    """Train without libraries, weights and velocity in a long list or a large table."""
    rng = random.Random(0)
    rows = [[rng.uniform(-1, 1) for _ in range(many)] for _ in range(16)]
    keys = [f"f{i}" for i in range(many)]
    w, v, step, file = dict.fromkeys(keys, 0.0), dict.fromkeys(keys, 0.0), 0, folder / "state.json"
    held: Any = w if table else list(w.values())
    if file.exists():
        found = json.loads(file.read_text())
        held, step, v = found["w"], found["step"], v if lost else found["v"]
    while step < 16:
        yield step
        values = list(held.values()) if table else held
        error = sum(a * b for a, b in zip(values, rows[step], strict=True)) - 1
        v = {key: 0.9 * m + error * a for (key, m), a in zip(v.items(), rows[step], strict=True)}
        values = [a - 0.001 * m for a, m in zip(values, v.values(), strict=True)]
        held = dict(zip(keys, values, strict=True)) if table else values
        step += 1
        if step % 4 == 0:
            file.write_text(json.dumps({"w": held, "v": v, "step": step}))


@pytest.mark.parametrize(("many", "table"), [(100, False), (WORDS, True)])
def test_weights_in_them_are_trained(many: int, table: bool) -> None:
    assert judged(weights, many=many, table=table).verdict == "holds"
    found = judged(weights, many=many, table=table, lost=True)
    assert (found.verdict, found.suspects[0].path.partition(".")[0]) == ("broken", "v")
