"""Tables that give a default for what they have not: what is as the default is as if it were not there."""

import collections
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import parity
from parity.capture import Walk

SENTENCE = "the cat sat on the mat and the rat sat on that hat while a fat bat at the back ate all the oats"
TEXT = SENTENCE.split()

Trainer = Callable[[Path, int], Iterator[int]]


class Words:
    """Pairs of letters, counted, and the words that they are in."""

    def __init__(self, merges: list[Any], words: dict[str, list[str]]) -> None:
        self.merges, self.words = merges, words
        self.pairs: collections.Counter[Any] = collections.Counter()
        self.where: dict[Any, set[str]] = collections.defaultdict(set)
        for word in words:
            self.add(word, 1)

    def add(self, word: str, sign: int) -> None:
        for pair in zip(self.words[word], self.words[word][1:], strict=False):
            self.pairs[pair] += sign * TEXT.count(word)
            (self.where[pair].add if sign > 0 else self.where[pair].discard)(word)

    def merge(self) -> None:
        best = max(self.pairs, key=lambda pair: (self.pairs[pair], pair))
        self.merges.append(list(best))
        for word in sorted(self.where[best]):
            self.add(word, -1)
            left, out = self.words[word], []
            while left:
                n = 2 if tuple(left[:2]) == best else 1
                out.append("".join(left[:n]))
                left = left[n:]
            self.words[word] = out
            self.add(word, 1)


def trainer(lost: bool) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        file = folder / "words.json"
        at_hand = Words([], {word: list(word) for word in TEXT})
        if file.exists():
            at_hand = Words(*json.loads(file.read_text()))
            if lost:
                at_hand.pairs.subtract(dict.fromkeys(list(at_hand.pairs)[:6], 5))
        while len(at_hand.merges) < steps:
            yield len(at_hand.merges)
            at_hand.merge()
            if len(at_hand.merges) % 5 == 0:
                file.write_text(json.dumps([at_hand.merges, at_hand.words]))
        return at_hand.merges

    return train


def test_empty_sets_and_zeros_that_a_resume_does_not_make_are_no_loss() -> None:
    found = parity.resumes(trainer(False), steps=24, stop_at=13, mode="inline", scenarios="all")
    assert found.verdict == "holds", found.text()
    lost = parity.resumes(trainer(True), steps=24, stop_at=13, mode="inline")
    assert lost.verdict == "broken", lost.text()
    assert lost.suspects[0].path.startswith("at_hand.pairs["), lost.text()


@pytest.mark.parametrize(
    ("table", "shown"),
    [
        (collections.Counter(a=0, b=2), {"t.len": "1", "t.b": "2"}),
        (collections.defaultdict(float, a=0.0, b=-0.0), {"t.len": "1", "t.b": "-0.0"}),
        (collections.defaultdict(list, a=[], b=[3]), {"t.len": "1", "t.b.len": "1", "t.b[0]": "3"}),
        ({"a": 0}, {"t.len": "1", "t.a": "0"}),
        (collections.Counter(a=False, b=0.0), {"t.len": "2", "t.a": "False", "t.b": "0.0"}),
    ],
)
def test_what_is_as_the_default_is_not_shown(table: Any, shown: dict[str, str]) -> None:
    walk = Walk()
    walk.root("t", table)
    leaves = walk.finish().leaves
    assert {p: leaf.digest for p, leaf in leaves.items() if "default_factory" not in p} == shown


def test_many_are_one_leaf_without_them() -> None:
    whole = []
    for more in ({}, {"gone": 0}):
        walk = Walk(many=5)
        walk.root("t", collections.Counter({f"k{n}": n + 1 for n in range(200)} | more))
        whole.append(walk.finish().leaves)
    assert whole[0] == whole[1]
    assert "Counter[200]" in whole[0]["t"].kind


def letters(lost: bool) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        file, words, n = folder / "w.json", {word: list(word) for word in sorted(set(TEXT))}, 0
        if file.exists():
            words, n = json.loads(file.read_text())
            if lost:
                words = {word: list(word) for word in words}
        while n < steps:
            yield n
            word = sorted(words, key=lambda one: (-len(words[one]), one))[0]
            words[word] = ["".join(words[word][:2]), *words[word][2:]]
            n += 1
            if n % 3 == 0:
                file.write_text(json.dumps([words, n]))
        return words

    return train


def test_where_no_number_changes_texts_are_what_is_trained() -> None:
    found = parity.resumes(letters(False), steps=12, stop_at=8, mode="inline")
    assert found.verdict == "holds", found.text()
    assert "no number changes: texts are taken for" in found.text(), found.text()
    lost = parity.resumes(letters(True), steps=12, stop_at=8, mode="inline")
    assert lost.verdict == "broken", lost.text()
    assert lost.suspects[0].path.startswith("words."), lost.text()


def out_of_sight(folder: Path, steps: int) -> Iterator[int]:
    """Trains nothing that is seen; its lines for people are texts that change at each step."""
    status, n, file = {"line": "", "last": ""}, 0, folder / "n"
    if file.exists():
        n = int(file.read_text())
    while n < steps:
        yield n
        n += 1
        status = {"line": f"step {n}", "last": status["line"]}
        file.write_text(str(n))


def test_lines_for_people_are_nothing_that_is_trained() -> None:
    found = parity.resumes(out_of_sight, steps=12, stop_at=8, mode="inline")
    assert found.verdict == "inconclusive", found.text()


def counted(lost: bool) -> Trainer:
    """Counts in a plain dict, whose zeros a resume does not make, beside sums that it makes from the same."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        at, n, file = [0] * 12, 0, folder / "at.json"
        if file.exists():
            at, n = json.loads(file.read_text())
        table: dict[tuple[int, int], int] = {}
        sums = [0, 0, 0]
        for place, kind in enumerate(at):
            table[place % 4, kind] = table.get((place % 4, kind), 0) + 1
            sums[kind] += 0 if lost and n else 1
        while n < steps:
            yield n
            place = n * 5 % 12
            table[place % 4, at[place]] -= 1
            sums[at[place]] -= 1
            at[place] = (n * 7 + sums[0] + 2 * table.get((place % 4, 1), 0)) % 3
            table[place % 4, at[place]] = table.get((place % 4, at[place]), 0) + 1
            sums[at[place]] += 1
            n += 1
            if n % 5 == 0:
                file.write_text(json.dumps([at, n]))
        return at

    return train


def test_a_zero_that_is_not_there_is_named_behind_what_was_lost() -> None:
    held = parity.resumes(counted(False), steps=36, stop_at=24, mode="inline")
    assert held.verdict == "holds", held.text()
    assert any(one.path.startswith("table[") for one in held.bookkeeping), held.text()
    found = parity.resumes(counted(True), steps=36, stop_at=24, mode="inline")
    assert (found.verdict, found.suspects[0].path[:5]) == ("broken", "sums["), found.text()
