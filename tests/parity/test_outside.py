"""What both twins share is compared with an implementation that neither uses: comparing twins cannot find it wrong.

The references are `torch.optim.lr_scheduler`, `jax.random` and the distributions of `torch.nn.init`.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import xxhash
from flax import nnx
from torch.optim import lr_scheduler as lr

import jax_side.dropout
import torch_side.dropout
from parity import threefry
from parity.spec import CnnSpec, DropoutSpec, GptSpec, MlpSpec, ModelSpec, ScheduleSpec
from parity.twins import ArrayStream, data, factor, initial, initial_params, rates, schedule

Array = np.ndarray[Any, Any]


@cache
def key(seed: int, *folded: int) -> Any:
    """Return the key that jax.random derives from a seed and numbers that are folded in."""
    out = jax.random.key(seed, impl="threefry2x32")
    for number in folded:
        out = jax.random.fold_in(out, np.uint32(number))
    return out


@cache
def bits(seed: int, folded: tuple[int, ...], n: int) -> Array:
    """Return draws of jax.random as exact numbers, float64 [n]."""
    return np.asarray(jax.random.bits(key(seed, *folded), (n,)), np.float64)


def check_generator() -> None:
    for seed, folded in ((0, ()), (2**32 - 1, (3, 2**32 - 1)), (77, (0,))):
        ours = threefry.key(seed)
        for number in folded:
            ours = threefry.fold_in(ours, number)
        np.testing.assert_array_equal(threefry.bits(ours, 257), bits(seed, folded, 257))


PEAK, STEPS = 3e-3, 120


@cache
def torch_rates(kind: str, warmup: int, horizon: int, final: float) -> Array:
    """Return the rates of PyTorch's warm-up and its schedule after it, in the usual order of calls."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=PEAK)
    after: Any = lr.CosineAnnealingLR(optimizer, T_max=horizon - warmup, eta_min=PEAK * final)
    if kind != "cosine":
        end = final if kind == "linear" else 1.0
        after = lr.LinearLR(optimizer, start_factor=1.0, end_factor=end, total_iters=horizon - warmup)
    warm = lr.LinearLR(optimizer, start_factor=1 / (warmup + 1), total_iters=max(1, warmup))
    scheduler = lr.SequentialLR(optimizer, [warm, after], [warmup]) if warmup else after
    out = []
    for _ in range(horizon + 1 if kind == "cosine" else STEPS):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return np.array(out)


def check_schedule() -> None:
    for kind in ("constant", "linear", "cosine"):
        for warmup, final in ((0, 0.0), (1, 0.1), (17, 0.5)):
            shape = ScheduleSpec(kind=kind, warmup=warmup, horizon=90, final=final)  # type: ignore[arg-type]
            expected = torch_rates(kind, warmup, 90, final)
            np.testing.assert_allclose(rates(shape, PEAK, 0, len(expected)), expected, rtol=1e-12, atol=1e-15)
            assert factor(shape, 10**6) == pytest.approx({"constant": 1.0}.get(kind, final), rel=1e-12, abs=1e-15)


SHAPE, LAYERS, MICROS = (16, 24), 2, 2
INPUT = np.linspace(-2.0, 3.0, math.prod(SHAPE), dtype=np.float32).reshape(SHAPE)


def masked(rate: float, seed: int, steps: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Array, Array]]:
    """Yield (step, micro-batch, layer), and what the twins make of the input there, JAX first."""
    spec = DropoutSpec(rate=rate)
    keys = torch_side.dropout.mask_keys(seed, np.array(steps, np.int32), MICROS, LAYERS)
    for number, step in enumerate(steps):
        for micro in range(MICROS):
            one = jax_side.dropout.mask_keys(seed, jnp.int32(step), jnp.int32(micro))
            for layer in range(LAYERS):
                ours = jax_side.dropout.Dropout(spec, layer, nnx.Rngs(0))(jnp.asarray(INPUT), one, train=True)
                module = torch_side.dropout.Dropout(spec, layer)
                theirs = module(torch.tensor(INPUT), keys[number, micro], train=True)
                yield (step, micro, layer), np.asarray(ours), theirs.numpy()


def check_masks() -> None:
    """An element is kept where the draw, as a fraction of 2**32, is at least the rate; its scale is PyTorch's."""
    for rate, seed, steps in ((0.1, 5, (0, 2**31 - 1)), (0.5, 2**32 - 1, (3,))):
        for at, ours, theirs in masked(rate, seed, steps):
            kept = (bits(seed, (0xD0, *at), INPUT.size) / 2.0**32 >= rate).reshape(SHAPE)
            torch.manual_seed(0)
            native = torch.nn.functional.dropout(torch.tensor(INPUT), rate).numpy()
            scale = np.median(native[native != 0] / INPUT[native != 0])
            for value in (ours, theirs):
                np.testing.assert_array_equal(value != 0, kept & (INPUT != 0))
                np.testing.assert_allclose(value[kept], INPUT[kept] * scale, rtol=3e-7)


MODELS: tuple[ModelSpec, ...] = (
    MlpSpec(hidden=(384, 384, 384)),
    CnnSpec(channels=(64, 128)),
    GptSpec(embedding_std=0.02, vocabulary=1024),
)


@cache
def torch_start(kind: str, shape: tuple[int, ...], weight: tuple[int, ...], std: float) -> Array:
    """Return a start as PyTorch's layers draw it: the functions of torch.nn.init that their resets call.

    Args:
        kind: What the leaf is.
        shape: Its shape.
        weight: Shape of the weight of its layer, which a bias takes its bound from.
        std: Standard deviation of embeddings.
    """
    torch.manual_seed(1)
    out = torch.empty(shape)
    if kind in ("scale", "shift"):
        torch.nn.init.constant_(out, float(kind == "scale"))
    elif kind == "embedding":
        torch.nn.init.normal_(out, std=std)
    elif kind == "bias":
        fan_in, _ = torch.nn.init._calculate_fan_in_and_fan_out(torch.empty(weight))
        torch.nn.init.uniform_(out, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))
    else:
        torch.nn.init.kaiming_uniform_(out, a=math.sqrt(5))
    return np.sort(out.numpy().ravel())


def kind_of(name: str, module: str) -> str:
    if "norm" in module:
        return "scale" if name.endswith("weight") else "shift"
    if module in ("tokens", "positions"):
        return "embedding"
    return "weight" if name.endswith("weight") else "bias"


def check_start() -> None:
    """The distributions are those of torch.nn.init, and leaves are independent of each other and within."""
    for model in MODELS:
        params, std = initial_params(model, 11), getattr(model, "embedding_std", 1.0)
        for name, value in params.items():
            module = name.rpartition(".")[0]
            kind = kind_of(name, module)
            theirs = torch_start(kind, value.shape, params[f"{module}.weight"].shape, std)
            same_distribution(name, np.sort(value.ravel()), theirs, bounded=kind in ("weight", "bias"))
        independent([value for name, value in params.items() if "norm" not in name and value.size > 4000])


def same_distribution(name: str, ours: Array, theirs: Array, *, bounded: bool) -> None:
    """Compare two sorted samples by Kolmogorov and Smirnov's test, at a millionth, and by their largest values."""
    if theirs[0] == theirs[-1]:
        np.testing.assert_array_equal(ours, theirs, err_msg=name)
        return
    joined = np.concatenate([ours, theirs])
    gap = np.abs(np.searchsorted(ours, joined, "right") - np.searchsorted(theirs, joined, "right")).max() / len(ours)
    assert gap < 2.69 * math.sqrt(2 / len(ours)), f"{name}: distributions {gap} apart"
    if bounded and len(ours) > 2000:
        np.testing.assert_allclose([ours[0], ours[-1]], [theirs[0], theirs[-1]], rtol=0.01, err_msg=name)
    elif len(ours) > 2000:
        np.testing.assert_allclose(ours.std(), theirs.std(), rtol=7 / math.sqrt(len(ours)), err_msg=name)


def independent(values: list[Array]) -> None:
    """Leaves, neighbours in a leaf, and its halves are uncorrelated, also squared, within five standard errors."""
    flat = [value.ravel().astype(np.float64) for value in values]
    flat += [value**2 for value in flat]
    pairs = [(a[:-1], a[1:]) for a in flat] + [(a[: len(a) // 2], a[len(a) - len(a) // 2 :]) for a in flat]
    pairs += [(a, b) for i, a in enumerate(flat) for b in flat[:i]]
    for a, b in pairs:
        n = min(len(a), len(b))
        assert abs(np.corrcoef(a[:n], b[:n])[0, 1]) < 5 / math.sqrt(n)


def check_draws() -> None:
    """A start is made of the draws of jax.random under the seed and the leaf's name."""
    model = GptSpec(vocabulary=16, context=8, width=8, heads=2, layers=1)
    name, n = "tokens.weight", 128
    u, v = np.split((bits(7, (xxhash.xxh32_intdigest(name.encode()),), 2 * n) + 0.5) / 2.0**32, 2)
    normal = np.abs(np.sqrt(-2 * np.log(u))) * np.exp(2j * np.pi * v).real
    np.testing.assert_allclose(initial_params(model, 7)[name].ravel(), normal, rtol=1e-6, atol=1e-7)
    for name in ("layers.0.weight", "layers.2.bias"):
        for seed in (0, 2**32 - 1):
            value = initial_params(MlpSpec(hidden=(16, 8)), seed)[name]
            draws = (bits(seed, (xxhash.xxh32_intdigest(name.encode()),), value.size) + 0.5) / 2.0**32
            bound = 1 / math.sqrt({"layers.0.weight": 64, "layers.2.bias": 8}[name])
            np.testing.assert_allclose(value.ravel(), (2 * draws - 1) * bound, rtol=1e-7, atol=0)


SIZE, BATCH = 23, 5


def check_order() -> None:
    """The order of an epoch sorts the draws of jax.random under (seed, epoch); the incomplete batch is dropped."""
    rows = np.arange(SIZE, dtype=np.int32)
    for seed in (0, 2**32 - 1):
        stream = ArrayStream(rows.astype(np.float32)[:, None], rows, batch=BATCH, seed=seed)
        stream.take(3)
        taken = stream.take(9).targets
        draws = [bits(seed, (0xDA7A, epoch), SIZE) for epoch in range(3)]
        orders = [np.argsort(one, kind="stable")[: SIZE - SIZE % BATCH].reshape(-1, BATCH) for one in draws]
        np.testing.assert_array_equal(taken, np.concatenate(orders)[3:])


CHECKS = {
    "generator": check_generator,
    "schedule": check_schedule,
    "masks": check_masks,
    "start": check_start,
    "draws of the start": check_draws,
    "data order": check_order,
}


@pytest.mark.takes_seconds
@pytest.mark.parametrize("piece", CHECKS)
def test_a_shared_piece_is_that_of_an_implementation_from_outside(piece: str) -> None:
    CHECKS[piece]()


def block_with(**changes: Any) -> Callable[[ExitStack], None]:
    """Return a plant of another constant of the generator."""

    def plant(stack: ExitStack) -> None:
        for name, value in changes.items():
            stack.enter_context(patch.object(threefry, name, value))

    return plant


def replaced(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Callable[[ExitStack], None]:
    return lambda stack: stack.enter_context(patch.object(owner, name, wrap(getattr(owner, name)))) and None


def both(*plants: Callable[[ExitStack], None]) -> Callable[[ExitStack], None]:
    def plant(stack: ExitStack) -> None:
        for one in plants:
            one(stack)

    return plant


def thresholds(change: Callable[[float], float]) -> Callable[[ExitStack], None]:
    """Return a plant of another threshold on both sides, which draw by the same one."""
    wrap = lambda f: lambda rate: f(change(rate))  # noqa: E731
    return both(replaced(threefry, "keep_threshold", wrap), replaced(jax_side.dropout, "keep_threshold", wrap))


def mask_streams(stack: ExitStack) -> None:
    for side in (jax_side.dropout, torch_side.dropout):
        stack.enter_context(patch.object(side, "STREAM", 0xDA7A))
    torch_side.dropout._root.cache_clear()
    stack.callback(torch_side.dropout._root.cache_clear)


def shaped(**changes: Any) -> Callable[[Any], Any]:
    """Return a schedule that works with other fields of its spec: values, or functions of it."""

    def wrap(method: Any) -> Any:
        def planted(spec: Any, step: int) -> float:
            new = {name: value(spec) if callable(value) else value for name, value in changes.items()}
            return float(method(replace(spec, **new), step))

        return planted

    return wrap


def in_schedule(wrap: Callable[[Any], Any]) -> Callable[[ExitStack], None]:
    return replaced(schedule, "factor", wrap)


def leaves(change: Callable[[Any], Any]) -> Callable[[ExitStack], None]:
    """Return a plant of other leaves in the list that the start is drawn from."""
    return replaced(initial, "_draw", lambda draw: lambda leaf, root, std: draw(change(leaf), root, std))


def reused(normal: Any) -> Any:
    """Draw the angle from the draws of the radius, one further."""

    def planted(own: Any, shape: tuple[int, ...]) -> Any:
        n = math.prod(shape)
        draws = threefry.uniform(own, n + 1)
        return (np.sqrt(-2 * np.log(draws[:n])) * np.cos(2 * np.pi * draws[1:])).reshape(shape)

    return planted


FAULTS: dict[str, tuple[str, Callable[[ExitStack], None]]] = {
    "a rotation of the generator": (
        "generator",
        block_with(_SHIFTS=(threefry._SHIFTS[0], (*threefry._SHIFTS[1][:3], (np.uint32(23), np.uint32(9))))),
    ),
    "the constant of the key schedule": ("generator", block_with(PARITY_CONSTANT=0x1BD11BDB)),
    "folds into the other word": (
        "generator",
        replaced(
            threefry, "fold_in", lambda f: lambda k, d: np.stack(threefry.block(k, np.asarray(d, np.uint32), 0), -1)
        ),
    ),
    "the warm-up starts at zero": (
        "schedule",
        in_schedule(lambda f: lambda s, step: step / (s.warmup + 1) if step < s.warmup else f(s, step)),
    ),
    "the warm-up ends one step late": ("schedule", in_schedule(shaped(warmup=lambda s: s.warmup + bool(s.warmup)))),
    "the horizon is one step on": ("schedule", in_schedule(shaped(horizon=lambda s: s.horizon + 1))),
    "the end of the schedule is lost": ("schedule", in_schedule(shaped(final=0.0))),
    "a line for a cosine": (
        "schedule",
        in_schedule(shaped(kind=lambda s: "linear" if s.kind == "cosine" else s.kind)),
    ),
    "the rate of the step before": ("schedule", in_schedule(lambda f: lambda s, step: f(s, max(0, step - 1)))),
    "the schedule keeps on to zero": (
        "schedule",
        in_schedule(lambda f: lambda s, step: f(s, step) if step <= s.horizon or s.kind == "constant" else 0.0),
    ),
    "dropped for kept": ("masks", thresholds(lambda rate: 1.0 - rate)),
    "a rate one percent off": ("masks", thresholds(lambda rate: rate * 1.01)),
    "masks from the stream of the data": ("masks", mask_streams),
    "every step has the masks of the first": (
        "masks",
        both(
            replaced(jax_side.dropout, "mask_keys", lambda f: lambda seed, step, micro: f(seed, step * 0, micro)),
            replaced(torch_side.dropout, "mask_keys", lambda f: lambda s, steps, m, n: f(s, steps * 0, m, n)),
        ),
    ),
    "every micro-batch has the masks of the first": (
        "masks",
        both(
            replaced(jax_side.dropout, "mask_keys", lambda f: lambda seed, step, micro: f(seed, step, micro * 0)),
            replaced(
                torch_side.dropout, "mask_keys", lambda f: lambda *a: (lambda k: k[:, :1].expand(k.shape))(f(*a))
            ),
        ),
    ),
    "bounds by the outputs": ("start", leaves(lambda leaf: replace(leaf, fan_in=leaf.shape[0]))),
    "a convolution has one pixel": (
        "start",
        leaves(lambda leaf: replace(leaf, fan_in=leaf.fan_in // 9 if leaf.kind == "convolution" else leaf.fan_in)),
    ),
    "bounds of Kaiming with a gain": (
        "start",
        leaves(lambda leaf: replace(leaf, fan_in=leaf.fan_in / 3 if leaf.kind == "linear" else leaf.fan_in)),
    ),
    "biases start at zero": (
        "start",
        leaves(lambda leaf: replace(leaf, kind="shift" if leaf.kind == "bias" else leaf.kind)),
    ),
    "norms start at zero": (
        "start",
        leaves(lambda leaf: replace(leaf, kind="shift" if leaf.kind == "scale" else leaf.kind)),
    ),
    "the variance for the standard deviation": (
        "start",
        replaced(initial, "_draw", lambda draw: lambda leaf, root, std: draw(leaf, root, std**2)),
    ),
    "embeddings are uniform": (
        "start",
        replaced(
            initial,
            "_normal",
            lambda f: (
                lambda own, shape: math.sqrt(12) * (threefry.uniform(own, math.prod(shape)) - 0.5).reshape(shape)
            ),
        ),
    ),
    "a normal draw uses a draw twice": ("start", replaced(initial, "_normal", reused)),
    "every leaf has the draws of the first": ("start", leaves(lambda leaf: replace(leaf, name="same"))),
    "the seed is not used": (
        "draws of the start",
        replaced(initial, "_draw", lambda draw: lambda leaf, root, std: draw(leaf, threefry.key(0), std)),
    ),
    "the lower end of a draw for its middle": (
        "draws of the start",
        replaced(threefry, "uniform", lambda f: lambda k, n: threefry.bits(k, n) * 2.0**-32),
    ),
    "every epoch has the order of the first": (
        "data order",
        replaced(data.ArrayStream, "_order", lambda f: lambda self, epoch: f(self, 0)),
    ),
    "the order of the epoch after": (
        "data order",
        replaced(data.ArrayStream, "_order", lambda f: lambda self, epoch: f(self, epoch + 1)),
    ),
    "the order backwards": (
        "data order",
        replaced(threefry, "permutations", lambda f: lambda keys, n: f(keys, n)[:, ::-1]),
    ),
    "ranks for the order": (
        "data order",
        replaced(threefry, "permutations", lambda f: lambda keys, n: np.argsort(f(keys, n), axis=1)),
    ),
    "the last batch is taken twice": (
        "data order",
        replaced(
            data.ArrayStream, "_rows", lambda f: lambda self, n: np.concatenate([f(self, n)[:-1], f(self, n)[-2:-1]])
        ),
    ),
}
"""Fault that both twins would share, to the check that finds it and the plant."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_both_twins_share_is_found(fault: str) -> None:
    piece, plant = FAULTS[fault]
    with ExitStack() as stack:
        plant(stack)
        with pytest.raises(AssertionError, match=r"Not equal|Mismatch|distributions|abs\(|assert"):
            CHECKS[piece]()


def test_every_shared_piece_has_faults() -> None:
    assert {piece for piece, _ in FAULTS.values()} == set(CHECKS)
