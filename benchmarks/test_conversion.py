"""Converting a training state with AdamW's moments, there and back, against `cp` and fsync of the same bytes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import bars
from benchmarks.paired import Arm, Versus, run_paired, slower
from parity import sides, storage
from parity.convert import ConversionRules, Options, convert, parse_rules
from parity.formats import SAFETENSORS, InMemory, Writer

pytestmark = pytest.mark.slow

GIGABYTES = float(os.environ.get("PARITY_CONVERSION_GB", "2"))
"""Size of the state; 8 for the bar on 8 GB."""

MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
COLD = 3e9 * GIGABYTES > 0.8 * MEMORY
"""Whether source, target and copy do not fit into memory together: then each arm reads the source from the disk, else
what an arm finds of it in memory would depend on the arm before."""

SMALL_ARRAYS = 20_000

LAYERS = 20
TRANSPOSED = [{"torch": "layers.*.weight", "jax": "layers.*.kernel", "transpose": True}]
"""Every matrix lies the other way round in JAX."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a `torch.save` file of a model and its moments, of random bits."""
    import torch

    folder = tmp_path_factory.mktemp("conversion")
    side = int((GIGABYTES * 1e9 / 4 / 3 / LAYERS) ** 0.5)
    base = torch.randn(side, side, generator=torch.Generator().manual_seed(0))
    model = {f"layers.{n}.weight": base + n for n in range(LAYERS)}
    parameters = [torch.nn.Parameter(torch.empty(1)) for _ in range(LAYERS)]
    groups = torch.optim.AdamW(parameters).state_dict()["param_groups"]
    state = {n: {"step": torch.tensor(5.0), "exp_avg": base * n, "exp_avg_sq": base.square()} for n in range(LAYERS)}
    torch.save({"model": model, "optimizer": {"state": state, "param_groups": groups}, "step": 5}, folder / "a.pt")
    return folder


def writer(name: str) -> Writer:
    """Return the writer of a format."""
    side: Any = sides.load("jax" if name == "orbax" else "torch")
    return next(one for one in side.writers() if one.format == name)


def copy(source: Path, target: Path) -> None:
    """Copy a file or a directory, and make it durable."""
    subprocess.run(["cp", "-r", str(source), str(target)], check=True)
    storage.fsync_files([target, *target.rglob("*")])


def evict(path: Path) -> None:
    """Have a checkpoint read from the disk next time, if that is how this size is measured."""
    for one in [path, *path.rglob("*")] if COLD else []:
        if one.is_file():
            handle = os.open(one, os.O_RDONLY)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def remove(path: Path) -> None:
    """Remove a checkpoint and its seal."""
    if path.is_dir():
        shutil.rmtree(path)
    for one in (path, path.with_name(f".{path.name}.seal.json")):
        one.unlink(missing_ok=True)


@pytest.mark.parametrize("way", ["to Orbax", "to PyTorch"])
def test_conversion_against_copy(benchmark: Any, home: Path, way: str) -> None:
    """Every array has in JAX the axes that it has in PyTorch."""
    measure(benchmark, home, way, "as they are", slower("convert", "copy", bar=1.5))


@pytest.mark.parametrize("way", ["to Orbax", "to PyTorch"])
def test_transposing_conversion_against_copy(benchmark: Any, home: Path, way: str) -> None:
    """Every matrix is transposed."""
    measure(benchmark, home, way, "transposed", slower("convert", "copy", bar=2.0))


def test_many_small_arrays_to_orbax_against_safetensors(benchmark: Any, tmp_path: Path) -> None:
    """20,000 arrays of 128 bytes: what a file and a synchronization for each of them would cost."""
    rows = np.random.default_rng(0).standard_normal((SMALL_ARRAYS, 4, 8), np.float32)
    tree = {f"layers.{n}.weight": InMemory(row) for n, row in enumerate(rows)}
    SAFETENSORS.write(tree, tmp_path / "source.safetensors")

    def arm(name: str, made: Writer) -> Arm:
        target = tmp_path / name
        return Arm(
            name=name,
            run=lambda: convert(tmp_path / "source.safetensors", target, made, Options(), now=time.time()),
            reset=lambda: remove(target),
        )

    arms = [*(arm(name, writer(name)) for name in ("orbax", "torch.save", "dcp")), arm("safetensors", SAFETENSORS)]
    ratios = [slower(name, "safetensors", bar=2.0) for name in ("orbax", "torch.save")]
    ratios.append(slower("dcp", "safetensors"))  # PyTorch's own save of each array is most of it
    run_paired(benchmark, arms, ratios, rounds=5, label="small arrays")


def test_conversion_to_dcp_against_plain_dcp(benchmark: Any, home: Path) -> None:
    """By hand it is `torch.load` and `dcp.save`, which holds it all, digests nothing and reads nothing back.

    What a conversion writes is read back, compared and digested before the seal, and nothing does that in no time.
    So the bar is against the same by hand: `dcp.load` into new tensors, `torch.equal`, the digests of the seal.
    """
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.utils import _pytree as pytree

    target, plain, checked = home / "dcp", home / "plain", home / "checked"

    def save(to: Path) -> Any:
        state = torch.load(home / "a.pt")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.distributed is disabled: this is one process
            dcp.save(state, checkpoint_id=to, no_dist=True)
        return state

    def save_and_check() -> None:
        state = save(checked)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            again = pytree.tree_map(
                lambda one: torch.empty_like(one) if isinstance(one, torch.Tensor) else one, state
            )
            dcp.load(again, checkpoint_id=checked, no_dist=True)
        pairs = zip(pytree.tree_leaves(state), pytree.tree_leaves(again), strict=True)
        assert all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)
        assert storage.digest_files(checked, [path.name for path in checked.iterdir()])

    arms = [
        Arm(
            name="convert",
            run=lambda: convert(home / "a.pt", target, writer("dcp"), Options(), now=time.time()),
            reset=lambda: remove(target),
        ),
        Arm(name="checked", run=save_and_check, reset=lambda: remove(checked)),
        Arm(name="plain", run=lambda: save(plain), reset=lambda: remove(plain)),
    ]
    ratios = [slower("convert", "checked", bar=1.0), slower("convert", "plain")]
    measured = run_paired(benchmark, arms, ratios, rounds=5, label="DCP")
    if measured.enabled:
        peak = anonymous_peak(home / "a.pt", home / "alone", "dcp")
        of = "anonymous memory of a conversion to DCP in MiB"
        measured.note_ratio("convert", Versus(name=of, of=of, better="lower", bar=bars.CONVERSION_MIB), [peak])
    for path in (target, plain, checked):
        remove(path)


def test_inspect_and_compare_without_arrays(benchmark: Any, home: Path) -> None:
    """In seconds, whatever the size: the structure is read, and equal seals decide; no array is."""
    there = home / "orbax-as-they-are"
    if not there.exists():
        assert not convert(home / "a.pt", there, writer("orbax"), Options(), now=time.time()).refused
    copied = home / "equal"
    subprocess.run(["cp", "-r", str(there), str(copied)], check=True)
    words = {"inspect": ["inspect", str(home / "a.pt")], "compare": ["compare", str(there), str(copied)]}
    arms = [
        Arm(
            name=name,
            run=lambda given=given: subprocess.run(
                [sys.executable, "-m", "parity", *given], check=True, stdout=subprocess.DEVNULL
            ),
        )
        for name, given in words.items()
    ]
    ratios = [
        Versus(name=name, of=f"seconds of {name}", take=lambda s, name=name: s[name], better="lower", bar=1.0)
        for name in words
    ]
    run_paired(benchmark, arms, ratios, rounds=9)
    remove(copied)


def measure(benchmark: Any, home: Path, way: str, matrices: str, ratio: Versus) -> None:
    """Time a conversion and a copy in turn, then the memory of one conversion."""
    options = Options(rules=ConversionRules(parse_rules("benchmark", TRANSPOSED) if matrices == "transposed" else ()))
    there, copied = home / f"orbax-{matrices.replace(' ', '-')}", home / "copy"
    if way == "to PyTorch" and not there.exists():
        assert not convert(home / "a.pt", there, writer("orbax"), options, now=time.time()).refused
    source, to = (home / "a.pt", "orbax") if way == "to Orbax" else (there, "torch.save")
    target, made = home / "target", writer(to)
    chosen = options if way == "to Orbax" else Options()
    size = int(GIGABYTES * 1e9)

    def reset(path: Path) -> None:
        remove(path)
        evict(source)

    arms = [
        Arm(
            name="convert",
            run=lambda: convert(source, target, made, chosen, now=time.time()),
            reset=lambda: reset(target),
            bytes=size,
        ),
        Arm(name="copy", run=lambda: copy(source, copied), reset=lambda: reset(copied), bytes=size),
    ]
    measured = run_paired(benchmark, arms, [ratio], rounds=5, label=f"{way}, {matrices}")
    if measured.enabled:
        measured.note("convert", anonymous_mb=anonymous_peak(source, home / "alone", to))
    for path in (target, copied):
        remove(path)


def anonymous_peak(source: Path, target: Path, to: str) -> int:
    """Return the anonymous memory of a conversion in a process of its own, in MiB, above that of its imports."""
    code = f"""
import sys, threading, time
from pathlib import Path
from benchmarks.test_conversion import convert, writer, Options, resident
made, peak, going = writer({to!r}), [0], [True]
base = resident()
def look():
    while going[0]:
        peak[0] = max(peak[0], resident())
        time.sleep(0.01)
thread = threading.Thread(target=look)
thread.start()
convert(Path({str(source)!r}), Path({str(target)!r}), made, Options(), now=time.time())
going[0] = False
thread.join()
print((peak[0] - base) >> 10)
"""
    remove(target)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    remove(target)
    return int(ran.stdout.split()[-1])


def resident() -> int:
    """Return the anonymous memory of this process in KiB (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
