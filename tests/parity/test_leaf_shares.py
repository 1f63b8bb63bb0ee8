"""Digests completed in shares: the text is that of one process, and no process gets more than its share."""

import json
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from parity.errors import StateError
from parity.state import LeafDigest, SharedLeaf, complete_in_shares, digest_together
from parity.state import leaf_shares as shares

LEAVES = {"wide": (701, 1024), "small": (6, 4), "one": (1, 1), "empty": (0, 3), "tall": (300_001, 2)}


def value(leaf: str) -> np.ndarray:
    return np.random.default_rng(len(leaf)).normal(size=LEAVES[leaf]).astype(np.float32)


def split(leaf: str, index: int, count: int) -> tuple[int, np.ndarray]:
    """Return the rows of one process as `torch.chunk` gives them: the last have fewer, or none."""
    each = -(-LEAVES[leaf][0] // count)
    low = min(index * each, LEAVES[leaf][0])
    return low, value(leaf)[low : low + each]


def held(index: int, count: int, copies: int = 1) -> dict[str, dict[str, LeafDigest]]:
    """Return what a process holds, of each leaf of one copy; every `copies`-th process begins another."""
    found = {}
    for leaf, shape in LEAVES.items():
        digest = LeafDigest(shape, np.float32)
        low, rows = split(leaf, index // copies, count // copies)
        digest.add((low, 0), rows)
        found[leaf] = {str(index % copies): digest}
    return found


class Scattering:
    """What threads in the place of processes give each other, with the bytes that each of them got."""

    def __init__(self, count: int) -> None:
        self.count, self.meeting = count, threading.Barrier(count, timeout=60)
        self.given: list[list[str]] = [[] for _ in range(count)]
        self.got, self.rounds = [0] * count, [0] * count

    def of(self, index: int) -> Callable[[list[Any]], list[Any]]:
        def scatter(values: list[Any]) -> list[Any]:
            assert len(values) == self.count
            self.given[index] = [json.dumps(one) for one in values]
            self.meeting.wait()
            texts = [theirs[index] for theirs in self.given]
            self.meeting.wait()
            self.got[index] += sum(map(len, texts))
            self.rounds[index] += 1
            return [json.loads(text) for text in texts]

        return scatter


def in_threads(act: Callable[[int], None], count: int) -> None:
    """Call a function once for each process, in threads in their place."""
    threads = [threading.Thread(target=act, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


def together(count: int, holding: list[dict[str, dict[str, LeafDigest]]]) -> tuple[list[Any], Scattering]:
    between = Scattering(count)
    found: list[Any] = [None] * count
    sizes = [(leaf, 4 * shape[0] * shape[1]) for leaf, shape in LEAVES.items()]

    def act(index: int) -> None:
        try:
            found[index] = complete_in_shares(sizes, holding[index], between.of(index), count)
        except ValueError as error:
            found[index] = error

    in_threads(act, count)
    return found, between


def texts(found: list[Any], copy: str = "0") -> dict[str, str]:
    """Return what one process makes of the shares of all, which it gets packed."""
    merged = {leaf: LeafDigest(shape, np.float32) for leaf, shape in LEAVES.items()}
    for share in found:
        for leaf, copies in share.items():
            if copy in copies:
                packed = copies[copy].packed()
                assert packed["parts"] == {}  # digests alone
                merged[leaf].merge(LeafDigest.unpacked(json.loads(json.dumps(packed))))
    return {leaf: digest.text() for leaf, digest in merged.items()}


WHOLE = texts([held(0, 1)])


@pytest.mark.takes_seconds("16")
@pytest.mark.parametrize("count", [1, 2, 3, 7, 16])
def test_the_digests_are_those_of_one_process(count: int) -> None:
    found, _ = together(count, [held(index, count) for index in range(count)])
    assert texts(found) == WHOLE


def test_each_copy_is_completed_by_itself() -> None:
    found, _ = together(6, [held(index, 6, copies=2) for index in range(6)])
    assert texts(found, "0") == texts(found, "1") == WHOLE


@pytest.mark.takes_seconds
def test_no_process_gets_much_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where shards are smaller than a block all of the state crosses, and process 0 would have got all of it."""
    monkeypatch.setattr(shares, "ROUND", 1 << 16)
    count = 16
    found, between = together(count, [held(index, count) for index in range(count)])
    assert texts(found) == WHOLE
    everything = sum(between.got)
    assert everything > 4 * 701 * 1024
    assert max(between.got) < everything / 2
    assert len(set(between.rounds)) == 1
    assert between.rounds[0] > 1


def test_elements_in_two_processes_are_said_by_who_completes_the_block_and_nobody_waits() -> None:
    holding = [held(index, 4) for index in range(4)]
    twice = LeafDigest(LEAVES["small"], np.float32)
    twice.add((0, 0), value("small")[:3])
    holding[1]["small"]["0"] = twice
    found, _ = together(4, holding)
    problems = [one for one in found if isinstance(one, ValueError)]
    assert len(problems) == 1
    assert "twice" in str(problems[0])


def test_an_element_in_no_process_is_missing() -> None:
    holding = [held(index, 3) for index in range(3)]
    holding[2]["wide"]["0"] = LeafDigest(LEAVES["wide"], np.float32)
    found, _ = together(3, holding)
    with pytest.raises((ValueError, AssertionError)):
        texts(found)


def test_another_element_gives_another_digest() -> None:
    holding = [held(index, 3) for index in range(3)]
    low, rows = split("tall", 1, 3)
    rows[5, 1] = np.nextafter(rows[5, 1], np.float32(9))
    changed = LeafDigest(LEAVES["tall"], np.float32)
    changed.add((low, 0), rows)
    holding[1]["tall"]["0"] = changed
    found, _ = together(3, holding)
    got = texts(found)
    assert {leaf for leaf in LEAVES if got[leaf] != WHOLE[leaf]} == {"tall"}


class Gathering:
    """What threads in the place of processes tell each other, with the number of times and the bytes of each time."""

    def __init__(self, count: int) -> None:
        self.count, self.meeting = count, threading.Barrier(count, timeout=60)
        self.given = [""] * count
        self.sizes: list[int] = []

    def of(self, index: int) -> Callable[[Any], list[Any]]:
        def exchange(value: Any) -> list[Any]:
            self.given[index] = json.dumps(value)
            self.meeting.wait()
            texts = list(self.given)
            if index == 0:
                self.sizes.append(sum(map(len, texts)))
            self.meeting.wait()
            return [json.loads(text) for text in texts]

        return exchange


def told(
    count: int, holding: list[dict[str, dict[str, LeafDigest]]], names: list[str]
) -> tuple[list[Any], Gathering]:
    """Return what each process has from `digest_together` of these leaves, or why it raised."""
    between = Gathering(count)
    found: list[Any] = [None] * count

    def act(index: int) -> None:
        leaves = [
            SharedLeaf(name, 4 * LEAVES[name][0] * LEAVES[name][1], lambda name=name: holding[index][name])
            for name in names
        ]
        try:
            found[index] = digest_together(leaves, between.of(index), index, count)
        except StateError as error:
            found[index] = error

    in_threads(act, count)
    return found, between


@pytest.mark.takes_seconds
@pytest.mark.parametrize("round_bytes", [8 << 20, 1 << 18, 1 << 16])
@pytest.mark.parametrize(("count", "copies"), [(1, 1), (2, 1), (3, 1), (7, 1), (6, 2)])
def test_all_learn_the_digests_of_one_process_however_they_divide_them(
    count: int, copies: int, round_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "ROUND", round_bytes)
    found, _ = told(count, [held(index, count, copies) for index in range(count)], list(LEAVES))
    assert found == [WHOLE] * count


def cut_at(ends: list[int], names: list[str]) -> tuple[list[Any], Gathering, str]:
    """Return what processes have of leaves with these ends of rows, what they told each other, and what is right."""
    value = np.random.default_rng(0).normal(size=(ends[-1], 4096)).astype(np.float32)
    count, between = len(ends), Gathering(len(ends))
    found: list[Any] = [None] * count

    def act(index: int) -> None:
        begin = ends[index - 1] if index else 0

        def digests() -> dict[str, LeafDigest]:
            made = LeafDigest(value.shape, np.float32)
            made.add((begin, 0), value[begin : ends[index]])
            return {"": made}

        leaves = [SharedLeaf(name, value.nbytes, digests) for name in names]
        found[index] = digest_together(leaves, between.of(index), index, count)

    in_threads(act, count)
    whole = LeafDigest(value.shape, np.float32)
    whole.add((0, 0), value)
    return found, between, whole.text()


def test_where_no_block_lies_in_two_processes_all_meet_twice_whatever_the_number_of_leaves() -> None:
    """64 rows of 4,096 columns are a block, so that no end of a shard crosses."""
    names = [f"{number}" for number in range(12)]
    found, between, text = cut_at([256, 512], names)
    assert found == [dict.fromkeys(names, text)] * 2
    assert len(between.sizes) == 2


def test_processes_with_ends_of_shards_and_without_tell_of_the_same_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round is full after two leaves where a block is cut, and would take all where none is."""
    monkeypatch.setattr(shares, "ROUND", 3 << 19)
    names = [f"{number}" for number in range(6)]
    found, _, text = cut_at([60, 64, 128], names)
    assert found == [dict.fromkeys(names, text)] * 3


@pytest.mark.takes_seconds
def test_what_crosses_at_once_is_bounded_by_the_round_and_the_ends_of_one_leaf(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shares, "ROUND", 1 << 16)
    count = 16  # shards are smaller than a block: all of the state crosses
    found, between = told(count, [held(index, count) for index in range(count)], list(LEAVES))
    assert found == [WHOLE] * count
    assert sum(between.sizes) > 4 * 701 * 1024
    assert len(between.sizes) > 8
    assert max(between.sizes) < sum(between.sizes) / 4


@pytest.mark.parametrize("fault", ["twice", "twice-in-a-whole-block", "nowhere", "copies"])
def test_what_is_wrong_in_one_process_all_refuse(fault: str) -> None:
    count = 4
    copies = 2 if fault == "copies" else 1
    holding = [held(index, count, copies) for index in range(count)]
    leaf = "wide"
    whole = LeafDigest(LEAVES[leaf], np.float32)
    if fault == "twice":
        leaf = "small"
        whole = LeafDigest(LEAVES[leaf], np.float32)
        whole.add((0, 0), value(leaf)[:3])
    elif fault == "twice-in-a-whole-block":
        whole.add((0, 0), value(leaf)[:512])
    elif fault == "copies":
        low, rows = split(leaf, 0, 2)
        whole.add((low, 0), rows + 1)
    holding[1][leaf] = {"1" if fault == "copies" else "0": whole}
    found, _ = told(count, holding, list(LEAVES))
    assert all(isinstance(one, StateError) for one in found), found
    assert len({str(one) for one in found}) == 1
    words = {"nowhere": "missing", "copies": "differ"}.get(fault, "twice")
    assert words in str(found[0])
    assert leaf in str(found[0])
