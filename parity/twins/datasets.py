"""Data that needs no download, as plain arrays: digit images, English text, and samples of a linear map."""

from __future__ import annotations

import errno
import functools
import importlib.util
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from parity import threefry
from parity.errors import RunDirectoryError, SpecError
from parity.spec import RunSpec
from parity.storage import local_path, read_given
from parity.twins.sizes import host_needs, physical_memory, require_memory

__all__ = ["Dataset", "batches_per_epoch", "describe_data", "load_dataset"]

SPLIT_SEED = 1797
"""Seed of the split into training and validation samples; the same for every run and every seed."""

SAMPLES = 2048
"""Samples of a regression, those held out among them."""

NOISE = 0.1
"""Largest noise on an output of a regression; outputs are of the size of the square root of the number of inputs."""

TEXT_BYTES = 17
"""Memory that cutting samples takes for a byte of text: itself, as int32, its place as int64, its copy as int32."""


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Arrays of samples, split once and for all."""

    inputs: NDArray[np.generic]
    """Training inputs: float32 [n, 64] in [0, 1] for digits, int32 [n, context] for text, float32 [n, inputs] in
    [-1, 1] for regression."""
    targets: NDArray[np.generic]
    """Training targets: int32 [n] classes, int32 [n, context] next bytes, or float32 [n, outputs]."""
    validation_inputs: NDArray[np.generic]
    validation_targets: NDArray[np.generic]
    digest: str
    """XXH3-128 over all samples: two Pythons may ship different texts, and a report must name its corpus."""


def load_dataset(spec: RunSpec) -> Dataset:
    """Load what a spec trains on.

    Raises:
        SpecError: scikit-learn or the file is missing, there are fewer samples than the spec asks for, or the run
            needs more memory than this machine has.
    """
    inputs: NDArray[np.generic]
    targets: NDArray[np.generic]
    if spec.data.source == "text":
        text, context = _text(spec.data.path), spec.model.tokens
        if len(text) <= context:
            raise SpecError("model.context", f"{context}, but the text has {len(text)} bytes: not one sample")
        samples = _windows(text, context)
        inputs, targets = samples[:, :-1], samples[:, 1:]
    elif spec.data.source == "regression":
        inputs, targets = _regression(*spec.model.regression, spec.seed)
    else:
        inputs, targets = _digits()
    _check_model(spec, inputs, targets)
    digest = xxhash.xxh3_128(np.ascontiguousarray(inputs))
    digest.update(np.ascontiguousarray(targets))

    held_out = spec.data.validation
    trained = len(inputs) - held_out
    if trained < spec.batch:
        raise SpecError(
            "batch",
            f"{spec.batch} samples asked for, but {len(inputs)} samples - {held_out} for validation "
            f"= {max(trained, 0)} to train on; lower batch or data.validation",
        )
    require_memory(host_needs(spec))
    order = threefry.permutation(threefry.key(SPLIT_SEED), len(inputs))
    train, validation = order[held_out:], order[:held_out]
    return Dataset(
        inputs=inputs[train],
        targets=targets[train],
        validation_inputs=inputs[validation],
        validation_targets=targets[validation],
        digest=digest.hexdigest(),
    )


def _check_model(spec: RunSpec, inputs: NDArray[np.generic], targets: NDArray[np.generic]) -> None:
    """Refuse a model that does not fit the samples, before a framework does so in its own words."""
    if spec.data.source == "regression":  # its samples are made to fit
        return
    problem = spec.model.misfit(inputs.shape[1], int(targets.max()) + 1)
    if problem is not None:
        raise SpecError(f"model.{problem[0]}", problem[1])


def _digits() -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Read scikit-learn's table of digits; its loader gives the same, after an import of 1.5 s."""
    found = importlib.util.find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        raise SpecError("data.source", "'digits' needs scikit-learn: pip install 'parity-suite[data]'")
    table = _table(Path(found.submodule_search_locations[0], "datasets", "data", "digits.csv.gz"))
    return table[:, :-1] / np.float32(16.0), table[:, -1].astype(np.int32)


@functools.cache
def _table(path: Path) -> NDArray[np.float32]:
    """Read a table of numbers once in this process: 0.5 MB, and 20 ms to parse for every trainer that is built."""
    table = np.loadtxt(path, delimiter=",", dtype=np.float32)
    table.setflags(write=False)
    return table


def _regression(features: int, outputs: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Draw a linear map, inputs, and outputs with noise, all uniform, from the shared generator.

    Products are added feature by feature in float64: a matrix product adds in another order on another machine.
    """
    root = threefry.fold_in(threefry.key(seed), 0x11EA)

    def draw(part: int, *shape: int) -> NDArray[np.float64]:
        return 2.0 * threefry.uniform(threefry.fold_in(root, part), math.prod(shape)).reshape(shape) - 1.0

    inputs = draw(0, SAMPLES, features)
    weight = draw(1, features, outputs)
    targets = draw(2, outputs) + NOISE * draw(3, SAMPLES, outputs)
    for feature in range(features):
        targets = targets + inputs[:, feature, None] * weight[feature]
    return inputs.astype(np.float32), targets.astype(np.float32)


def _text(path: str) -> bytes:
    if not path:
        from pydoc_data.topics import topics

        return "\n".join(topics[name] for name in sorted(topics)).encode()
    most = (physical_memory() or sys.maxsize) // TEXT_BYTES
    try:
        text = read_given(local_path(path), most).decode("utf-8")
    except RunDirectoryError as error:
        raise SpecError("data.path", str(error)) from error
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
        reason = str(getattr(error, "strerror", None) or error)
        if getattr(error, "errno", None) == errno.EFBIG:
            reason += f", the most whose samples fit into the memory of this machine: {TEXT_BYTES} bytes per byte"
        raise SpecError("data.path", f"cannot read {path} as UTF-8 text: {reason}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n").encode()


def _windows(text: bytes, context: int) -> NDArray[np.int32]:
    """Cut bytes into windows of context + 1, each starting on the last byte of the one before."""
    data = np.frombuffer(text, np.uint8).astype(np.int32)
    n = max(0, (len(data) - 1) // context)
    starts = np.arange(n)[:, None] * context
    return data[starts + np.arange(context + 1)]


def batches_per_epoch(spec: RunSpec) -> int:
    """Return how many batches a run takes from its training samples in one epoch; the incomplete last one is dropped.

    Raises:
        SpecError: As of `load_dataset`.

    Example:
        >>> from parity.spec import preset
        >>> batches_per_epoch(preset("mlp-digits"))  # 1,797 - 360 samples in batches of 64
        22
    """
    return len(load_dataset(replace(spec, steps=1)).inputs) // spec.batch


def describe_data(spec: RunSpec) -> dict[str, str]:
    """Return what a report calls the data, and its digest: the text of two Python versions differs."""
    if spec.data.source == "digits":
        name = "scikit-learn digits"
    elif spec.data.source == "regression":
        name = f"linear map with noise, {SAMPLES:,} samples drawn from seed {spec.seed}"
    else:
        name = spec.data.path or f"pydoc_data.topics of Python {sys.version_info.major}.{sys.version_info.minor}"
    short = replace(spec, steps=1)  # a check takes fewer steps than its spec, and no chunk that is longer
    return {"corpus": name, "digest": load_dataset(short).digest}
