"""The damages that savers are tried on, and how a restore is judged: a check that lets nothing pass by mistake."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers_damage import DAMAGES, PEERS, outcome, values
from tests.docs import pages


def made(home: Path) -> dict[Path, bytes]:
    for name, size in (("a", 3), ("b/c", 9000), ("b/empty", 0)):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_bytes(bytes([255]) * size)
    return held(home)


def held(home: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in sorted(home.rglob("*")) if file.is_file()}


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_changes_one_file_and_is_the_same_again(damage: str, tmp_path: Path) -> None:
    for seed in range(20):
        before = made(tmp_path)
        DAMAGES[damage](tmp_path, random.Random(seed))
        after = held(tmp_path)
        changed = [file for file in before if before[file] != after[file]]
        assert len(changed) == 1
        if damage == "a flipped bit":
            old, new = (np.frombuffer(found[changed[0]], np.uint8) for found in (before, after))
            assert int(np.unpackbits(old ^ new).sum()) == 1
        made(tmp_path)
        DAMAGES[damage](tmp_path, random.Random(seed))
        assert held(tmp_path) == after


class Peer:
    def __init__(self, found: object) -> None:
        self.found = found

    def restore(self, _: Path) -> object:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def test_a_restore_is_refused_equal_or_lets_damage_through(tmp_path: Path) -> None:
    other = values()
    other["w3"][-1, -1] = np.nextafter(other["w3"][-1, -1], np.float32(9))
    for found, said in ((values(), "equal"), (other, "let through"), (ValueError("no"), "refused")):
        assert outcome(Peer(found), tmp_path) == said  # type: ignore[arg-type]


def test_the_table_of_the_page_has_a_row_of_each_saver_and_damage() -> None:
    """Of the suite's own savers nothing is let through; what peers let through is as it was measured."""
    shown = pages.table("docs/scale.md", "saver", "damage").rows
    assert [(row[0], row[1]) for row in shown] == [(peer, damage) for peer in PEERS for damage in DAMAGES]
    for saver, _, copies, *found in shown:
        assert sum(map(int, found)) == int(copies)
        assert found[-1] == "0" or not saver.endswith("_side.save")


PLANTS = {
    test_the_table_of_the_page_has_a_row_of_each_saver_and_damage: [
        ("jax_side.save | a flipped bit | 60 | 60 | 0 | 0", "jax_side.save | a flipped bit | 60 | 59 | 0 | 1"),
        ("| DCP | a page of zeros | 60 | 1 |", "| DCP | a page of zeros | 60 | 2 |"),
    ],
}


@pytest.mark.parametrize(("test", "old", "new"), [(test, *plant) for test, rows in PLANTS.items() for plant in rows])
def test_a_page_that_says_something_else_is_found(
    test: Callable[[], None], old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages.expect_failure(test, "docs/scale.md", old, new, monkeypatch)
