"""Every writer: each type and container, read back by our readers and by the format's own library alone."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import jax_side
import torch_side
from parity.formats import SAFETENSORS, Array, Opaque, Tree, Writer, leaf_name, leaves, open_checkpoint
from tests.formats.shapes import bits, every_type

WRITERS: dict[str, Writer] = {
    writer.format: writer for writer in (*torch_side.writers(), *jax_side.writers(), SAFETENSORS)
}


def everything(tmp_path: Path) -> Tree:
    """Return the tree of a file with every type, and every container and scalar that weights_only reads."""
    more = {
        "lists": [1, [2.5, None, True], {"deep": torch.arange(3)}],
        "tuple": (1, (2, torch.ones(2))),
        5: {0: {"exp_avg": torch.ones(2, 3)}, 1: {}},
        "empties": {"dict": {}, "list": [], "tuple": ()},
        "text": "ß\u2028",
        "floats": [0.1, -0.0, 1e-320, float("inf"), float("nan")],
        "ints": [0, -(1 << 62), 1 << 62],
        "flags": [True, False, None],
    }
    torch.save({**every_type(), **more}, tmp_path / "source.pt")
    return open_checkpoint(tmp_path / "source.pt").tree


def fitting(writer: Writer, tree: Tree) -> tuple[Tree, set[str]]:
    """Return what of a tree a writer can hold, without the rest, and the names that it refused."""
    names = {name for name, _ in writer.cannot_hold(tree)}
    assert all(why for _, why in writer.cannot_hold(tree))
    tops = {name.partition(".")[0] for name in names}
    return {key: child for key, child in tree.items() if str(key) not in tops}, names


REFUSED = {
    "torch.save": set(),
    "dcp": set(),
    "safetensors": {"complex128", "float8_e4m3fnuz", "float8_e5m2fnuz"},
    "orbax": set(),
    "flax-msgpack": set(),
}
"""What a format cannot hold."""

SAME = ("torch.save", "dcp", "safetensors")
"""Formats that keep tuples and keys that are integers."""


@pytest.mark.parametrize("to", WRITERS)
def test_every_type_comes_back_bit_for_bit(tmp_path: Path, to: str) -> None:
    writer = WRITERS[to]
    tree, refused = fitting(writer, everything(tmp_path))
    assert {name.partition(".")[0] for name in refused} <= REFUSED.get(to, set()) | {"empties", "5", "tuple"}
    writer.write(tree, tmp_path / "out")
    assert (tmp_path / "out").is_dir() == writer.directory
    found = open_checkpoint(tmp_path / "out")
    assert found.format == to
    expected, made = dict(leaves(tree)), dict(leaves(found.tree))
    if to not in SAME:
        expected, made = ({tuple(map(str, k)): v for k, v in side.items()} for side in (expected, made))
    assert expected.keys() == made.keys()
    for keys, leaf in expected.items():
        other = made[keys]
        if isinstance(leaf, Array):
            assert isinstance(other, Array), leaf_name(keys)
            assert (other.shape, other.dtype) == (leaf.shape, leaf.dtype), leaf_name(keys)
            assert bits(other) == bits(leaf), leaf_name(keys)
        else:
            if to == "flax-msgpack" and isinstance(leaf, list | tuple):
                leaf = {}  # Flax has one empty container
            assert (type(other), repr(other)) == (type(leaf), repr(leaf)), leaf_name(keys)
    if to in SAME:
        assert [repr(type(c)) for c in found.tree.values()] == [repr(type(c)) for c in tree.values()] or to == "dcp"
    assert found.verify is None or found.verify() == []


@pytest.mark.parametrize("to", WRITERS)
def test_objects_of_code_are_refused(to: str) -> None:
    (refused,) = WRITERS[to].cannot_hold({"a": {"b": Opaque("os.system")}})
    assert refused[0] == "a.b"
    assert "os.system" in refused[1]


READERS = {
    "torch.save": """
        import torch
        found = torch.load(path, weights_only=True)
        assert found["tied"].data_ptr() == found["tied_again"].data_ptr()
        mapped = torch.load(path, weights_only=True, mmap=True)
        assert torch.equal(mapped["float32"], found["float32"])
        import zipfile
        assert zipfile.ZipFile(path).testzip() is None
        get = lambda name: found[name].contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    """,
    "dcp": """
        import torch, torch.distributed.checkpoint as dcp
        like = torch.load(source, weights_only=True)
        found = {k: torch.zeros_like(v) for k, v in like.items() if isinstance(v, torch.Tensor)}
        dcp.load(found, checkpoint_id=path, no_dist=True)
        get = lambda name: found[name].contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    """,
    "safetensors": """
        import torch
        from safetensors.torch import load_file
        found = load_file(path)
        get = lambda name: found[name].contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    """,
    "orbax": """
        import numpy as np, orbax.checkpoint as ocp
        found = ocp.PyTreeCheckpointer().restore(path)
        assert found["empty"] is None and found["lists"][0] == 1 and found["text"] == "\\u00df\\u2028"
        get = lambda name: np.asarray(found[name]).tobytes()
    """,
}


@pytest.mark.parametrize("to", READERS)
@pytest.mark.takes_seconds
def test_the_library_of_the_format_reads_it_without_this_project(tmp_path: Path, to: str) -> None:
    tree, _ = fitting(WRITERS[to], everything(tmp_path))
    WRITERS[to].write(tree, tmp_path / "out")
    wanted = {name: bits(leaf) for name, leaf in tree.items() if isinstance(leaf, Array)}
    if to == "orbax":
        del wanted["empty"]
    code = (
        "import sys\nfor name in ('parity', 'jax_side', 'torch_side'): sys.modules[name] = None\n"
        f"path, source = {str(tmp_path / 'out')!r}, {str(tmp_path / 'source.pt')!r}\n"
        + textwrap.dedent(READERS[to])
        + f"\nwanted = {wanted!r}\nprint([name for name, data in wanted.items() if get(name) != data], len(wanted))\n"
    )
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert ran.stdout.split()[-2:] == ["[]", str(len(wanted))]
    assert len(wanted) > 20


@pytest.mark.parametrize("to", WRITERS)
def test_large_arrays_are_written_in_pieces_and_come_back(tmp_path: Path, to: str) -> None:
    """Arrays above the size of a block: odd extents, so that pieces do not fit the grid; read across pieces."""
    writer = WRITERS[to]
    random = np.random.default_rng(0)
    value = random.standard_normal((3001, 1777), np.float32)
    torch.save({"model": {"w": torch.from_numpy(value), "t": torch.from_numpy(value).T}}, tmp_path / "source.pt")
    writer.write(open_checkpoint(tmp_path / "source.pt").tree, tmp_path / "out")
    found = open_checkpoint(tmp_path / "out").tree["model"]
    assert found["w"].load().tobytes() == value.tobytes()
    assert found["t"].load().tobytes() == np.ascontiguousarray(value.T).tobytes()
    box = ((2359, 2371), (17, 1770))
    assert np.array_equal(found["w"].read(box), value[2359:2371, 17:1770])


@pytest.mark.takes_seconds
@pytest.mark.soak
@pytest.mark.parametrize("to", WRITERS)
def test_memory_does_not_grow_with_the_arrays(tmp_path: Path, to: str) -> None:
    """Anonymous memory above that of the imports, for 1 GB in arrays of 250 MB: at most 512 MB."""
    with (tmp_path / "big.safetensors").open("wb") as file:
        import json

        each = 250_000_000
        names = {
            f"w{n}": {"dtype": "F32", "shape": [12500, 5000], "data_offsets": [n * each, (n + 1) * each]}
            for n in range(4)
        }
        header = json.dumps(names).encode()
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + 4 * each)
    code = f"""
        import threading, time
        from pathlib import Path
        import jax_side, torch_side
        from parity.formats import SAFETENSORS, open_checkpoint
        def anonymous():
            return int([l for l in open("/proc/self/status") if l.startswith("RssAnon")][0].split()[1])
        own = torch_side if {to!r} in ("torch.save", "dcp") else jax_side
        writers = (SAFETENSORS,) if {to!r} == "safetensors" else own.writers()
        writer = {{w.format: w for w in writers}}[{to!r}]
        tree = open_checkpoint(Path({str(tmp_path / "big.safetensors")!r})).tree
        base, peak, going = anonymous(), [0], [True]
        def look():
            while going[0]:
                peak[0] = max(peak[0], anonymous())
                time.sleep(0.005)
        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        writer.write(tree, Path({str(tmp_path / "out")!r}))
        going[0] = False
        thread.join()
        print((peak[0] - base) // 1024)
    """
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert int(ran.stdout.split()[-1]) <= 512


def test_a_tree_that_is_no_dict_is_refused_by_formats_of_names(tmp_path: Path) -> None:
    torch.save([torch.ones(2)], tmp_path / "source.pt")
    tree: Any = open_checkpoint(tmp_path / "source.pt").tree
    for to in ("orbax", "dcp"):
        assert WRITERS[to].cannot_hold(tree)[0][0] == "the tree"
    WRITERS["torch.save"].write(tree, tmp_path / "out.pt")
    assert torch.equal(torch.load(tmp_path / "out.pt", weights_only=True)[0], torch.ones(2))
