"""The damages that savers are tried on, and how a restore is judged: a check that lets nothing pass by mistake."""

import random
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers_damage import DAMAGES, outcome, values


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
