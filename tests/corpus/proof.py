"""Proof without the tool that a loop resumes exactly: through, or in pieces, and what is left compared bit for bit.

A piece ends as SIGKILL would end it: the folder is copied at the mark, and what the loop does from then on is done
to a folder that nobody looks at. Generators that all code shares begin each piece in another state, as they may in a
new process.
"""

from __future__ import annotations

import fnmatch
import json
import pickle
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import GeneratorType
from typing import Any

import numpy as np

import parity

__all__ = ["differences", "run_in_pieces", "what_is_left"]


class _Stopped(BaseException):
    """Raised at the mark at which a piece ends."""


def run_in_pieces(
    train: Callable[..., Any], root: Path, kills: Sequence[int] = (), **options: Any
) -> tuple[Path, Any]:
    """Run a training function, killed at some steps and resumed after each.

    Args:
        train: A generator of completed steps, or a function that calls `parity.mark`.
        root: Directory for the folders of the pieces.
        kills: Completed steps at which a piece ends.
        options: Further keyword arguments of the function.

    Returns:
        The last folder, and what the function returned.
    """
    suspended: list[Any] = []
    folder = root / "0"
    folder.mkdir(parents=True)
    for number, kill in enumerate((*kills, None), 1):
        _shake(number)
        left = root / str(number)
        ended, value, held = _run(train, folder, kill, left, options)
        suspended.append(held)
        if kill is None:
            if not ended:
                raise AssertionError(f"{train.__name__} did not end")
            return folder, value
        folder = left
    raise AssertionError("the last piece has no kill")


def _shake(number: int) -> None:
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(number)


def _run(
    train: Callable[..., Any], folder: Path, kill: int | None, left: Path, options: dict[str, Any]
) -> tuple[bool, Any, Any]:
    def see(step: int, **_: Any) -> None:
        if kill is not None and step >= kill:
            _snapshot(folder, left)
            raise _Stopped

    real = parity.mark
    parity.mark = see
    result: Any = None
    try:
        result = train(folder, **options)
        if isinstance(result, GeneratorType):
            return _drive(result, see)
    except _Stopped:
        return False, None, result
    finally:
        parity.mark = real
    if kill is not None:
        raise AssertionError(f"{train.__name__} ended before step {kill}")
    return True, result, None


def _snapshot(folder: Path, left: Path, tries: int = 50) -> None:
    """Copy a folder into which a thread may still write: begin again if a file went away meanwhile."""
    for number in range(tries):
        try:
            shutil.copytree(folder, left)
            return
        except (shutil.Error, FileNotFoundError):
            if number == tries - 1:
                raise
            shutil.rmtree(left, ignore_errors=True)


def _drive(running: GeneratorType[int, None, Any], see: Callable[[int], None]) -> tuple[bool, Any, Any]:
    try:
        while True:
            see(next(running))
    except StopIteration as end:
        return True, end.value, None
    except _Stopped:
        return False, None, running


def what_is_left(folder: Path, value: Any, volatile: Sequence[str] = ()) -> dict[str, str]:
    """Return the content of a folder and a returned value, leaf by leaf, as texts that are equal for equal bits.

    Args:
        folder: Folder of a run that ended.
        value: What the function returned.
        volatile: Patterns of files that are left out.
    """
    found = dict(leaves("returned", value))
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        inside = any((parent / "_METADATA").exists() for parent in path.parents if parent.is_relative_to(folder))
        if inside or any(fnmatch.fnmatch(name, pattern) for pattern in volatile):
            continue
        if path.is_dir():
            found |= leaves(name, _orbax(path)) if (path / "_METADATA").exists() else {f"{name}/": "directory"}
        elif path.name not in ("_CHECKPOINT_METADATA", "_sharding", "_METADATA"):  # clocks of Orbax
            found |= dict(leaves(name, _decoded(path)))
    return found


def differences(expected: dict[str, str], got: dict[str, str]) -> list[str]:
    """Return one line for each leaf that differs."""
    return [
        f"{path}: expected {expected.get(path, 'nothing')[:80]}, got {got.get(path, 'nothing')[:80]}"
        for path in {**expected, **got}
        if expected.get(path) != got.get(path)
    ]


def leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield path and text of every leaf of a value."""
    if type(value).__module__.partition(".")[0] in ("torch", "jaxlib", "jax", "flax", "tests") or callable(value):
        value = _neutral(value)
    if isinstance(value, np.random.RandomState):
        value = value.get_state()
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        value = value.tolist()
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(f"{path}.{key}", item)
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            yield from leaves(f"{path}[{at}]", item)
    elif isinstance(value, np.ndarray):
        yield path, f"{value.dtype}{list(value.shape)} {value.tobytes().hex()}"
    else:
        yield path, repr(value)


def _neutral(value: Any) -> Any:
    """Return tensors, keys, modules and states as arrays and containers."""
    if hasattr(value, "detach"):
        plain = value.detach().cpu()
        return plain.float().numpy() if plain.dtype.is_floating_point and plain.element_size() < 4 else plain.numpy()
    if hasattr(value, "state_dict"):
        return dict(value.state_dict())
    if type(value).__module__.startswith("flax.nnx"):
        from flax import nnx

        return nnx.to_pure_dict(nnx.state(value)) if isinstance(value, nnx.Module) else nnx.to_pure_dict(value)
    if "jax" in sys.modules:
        import jax

        if isinstance(value, jax.Array):
            is_key = jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key)
            return np.asarray(jax.random.key_data(value) if is_key else value)
    if hasattr(value, "__dict__") and not callable(value):
        return dict(vars(value))
    return value if isinstance(value, dict) else type(value).__qualname__


def _decoded(path: Path) -> Any:
    if path.suffix in (".pt", ".pth", ".ckpt", ".bin", ".tar"):
        import torch

        return torch.load(path, weights_only=False)
    if path.suffix in (".npz", ".npy"):
        with np.load(path, allow_pickle=True) if path.suffix == ".npz" else path.open("rb") as held:
            return dict(held) if path.suffix == ".npz" else np.load(held, allow_pickle=True)
    if path.suffix in (".pkl", ".pickle"):
        return pickle.loads(path.read_bytes())
    if path.suffix == ".json":
        return json.loads(path.read_text())
    return path.read_bytes()


def _orbax(path: Path) -> Any:
    import orbax.checkpoint as ocp

    described = ocp.PyTreeCheckpointer().metadata(path.resolve()).item_metadata.tree
    import jax

    as_arrays = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), described)
    return ocp.PyTreeCheckpointer().restore(path.resolve(), restore_args=as_arrays)
