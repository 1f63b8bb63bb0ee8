"""Files of `marshal`, whose bytes also say which objects something else referred to when they were written."""

import marshal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.checks.running import contents
from parity.checks.running.marshalled import is_marshalled, read_marshalled
from tests.live.small_loops import Trainer, check, first

SHARED = [2]
PLAIN = {
    "numbers": [1, -1, 2**40, -(10**30), 2.5, 1j, True, None, ...],
    "texts": ["a", "é", "é" * 200, "x" * 300, b"bytes"],
    "containers": [(), (1,), tuple(range(300)), {1, 2}, frozenset({3}), {}, SHARED, SHARED],
}


@pytest.mark.parametrize("version", [2, 3, 4])
def test_plain_values_are_read_as_they_were_written(version: int) -> None:
    written = marshal.dumps(PLAIN, version)

    assert is_marshalled(written)
    assert read_marshalled(written) == PLAIN


def test_a_list_in_itself_is_read() -> None:
    endless: list[Any] = [1]
    endless.append(endless)

    found = read_marshalled(marshal.dumps(endless))

    assert found[0] == 1
    assert found[1] is found


@pytest.mark.parametrize(
    "data",
    [b'{"a": 1}', b"[1, 2]", b"(1, 2)", b"[\xff\xff\xff\x7f", b"{zz", b"[" * 4000, marshal.dumps([1])[:-1],
     marshal.dumps([1]) + b"N", marshal.dumps([compile("1", "", "eval")]), b"<\1\0\0\0[\0\0\0\0"],
)  # fmt: skip
def test_bytes_that_begin_alike_are_no_file_of_it(data: bytes) -> None:
    assert read_marshalled(data) is None


def test_which_objects_were_referred_to_is_no_content(tmp_path: Path) -> None:
    many, one = [1000 + len(PLAIN), "a text"], [1000 + len(PLAIN), "".join(["a ", "text"])]
    held = list(many)  # by which these have more references

    (tmp_path / "a").write_bytes(marshal.dumps({"rows": [held[0], many[0], held[1]]}))
    (tmp_path / "b").write_bytes(marshal.dumps({"rows": [int("1003"), int("1003"), one[1]]}))
    left, right = (
        {path[1:]: leaf for path, leaf in contents(tmp_path, (), ()).items() if path[0] == name} for name in "ab"
    )

    assert (tmp_path / "a").read_bytes() != (tmp_path / "b").read_bytes()
    assert left.keys() == right.keys()
    assert all(leaf.same(right[path]) for path, leaf in left.items())


def keeps_in_it(*, lost: bool = False) -> Trainer:
    """Return a trainer whose checkpoint is such a file, and holds texts that other objects hold too, or not."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        path, start, scale, w = folder / "state", 0, 0.0, np.ones(2)
        if path.exists():
            kept = marshal.loads(path.read_bytes())
            start, w, names = kept["start"], np.array(kept["w"]), kept["names"]
            scale = scale if lost else kept["scale"]
        else:
            names = [f"w{letter}" for letter in "xyz"]
            also = {name: 0.0 for name in names}  # noqa: C420 - by which each name has one more reference
            assert also
        for number in range(start, steps):
            yield number
            scale += 0.1
            w = w - 0.1 * scale * (w - np.sin(number))
            if number % 4 == 3:
                kept = {"start": number + 1, "w": w.tolist(), "scale": scale, "names": names}
                path.write_bytes(marshal.dumps(kept))

    return train


def test_a_checkpoint_of_it_is_compared_by_content() -> None:
    assert check(keeps_in_it()).verdict == "holds"
    assert first(check(keeps_in_it(lost=True))) == "scale"
