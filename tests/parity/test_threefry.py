"""One generator, three implementations: NumPy, JAX and PyTorch agree bit for bit."""

import jax
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from parity import threefry
from tests.support.small import quick
from torch_side.dropout import random_bits

words = st.integers(0, 2**32 - 1)
EDGES = (0, 1, 2**31 - 1, 2**31, 2**32 - 1)


def jax_key(seed: int) -> jax.Array:
    return jax.random.wrap_key_data(np.array([0, seed], np.uint32), impl="threefry2x32")


@pytest.mark.parametrize("seed", EDGES)
def test_key_equals_jax(seed: int) -> None:
    expected = jax.random.key_data(jax.random.key(seed, impl="threefry2x32"))
    np.testing.assert_array_equal(threefry.key(seed), np.asarray(expected))


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_key_refuses_a_seed_it_cannot_hold(seed: int) -> None:
    with pytest.raises(ValueError, match=r"seed must be in \[0, 2\*\*32\), got"):
        threefry.key(seed)


@pytest.mark.takes_seconds
@given(seed=words, n=st.integers(0, 40))
@quick(60)
def test_bits_equal_jax_and_torch(seed: int, n: int) -> None:
    ours = threefry.bits(threefry.key(seed), n)
    assert ours.dtype == np.uint32
    assert ours.shape == (n,)
    np.testing.assert_array_equal(ours, np.asarray(jax.random.bits(jax_key(seed), (n,))))
    torch_key = torch.from_numpy(threefry.key(seed).view(np.int32))
    np.testing.assert_array_equal(ours, random_bits(torch_key, n).numpy().view(np.uint32))


@given(seed=words, data=st.lists(words, min_size=1, max_size=5))
@quick(60)
def test_a_chain_of_fold_ins_equals_jax(seed: int, data: list[int]) -> None:
    ours, theirs = threefry.key(seed), jax_key(seed)
    for item in data:
        ours = threefry.fold_in(ours, item)
        theirs = jax.random.fold_in(theirs, np.uint32(item))
    assert ours.dtype == np.uint32
    np.testing.assert_array_equal(ours, np.asarray(jax.random.key_data(theirs)))


@given(seed=words, data=st.lists(words, min_size=1, max_size=6))
@quick(30)
def test_fold_in_of_an_array_is_fold_in_of_each_element(seed: int, data: list[int]) -> None:
    key = threefry.key(seed)
    together = threefry.fold_in(key, np.array(data, np.uint32))
    np.testing.assert_array_equal(together, [threefry.fold_in(key, item) for item in data])


def test_fold_in_broadcasts_keys_against_data() -> None:
    keys = threefry.fold_in(threefry.key(3), np.arange(4))[:, None]
    both = threefry.fold_in(keys, np.arange(5))
    assert both.shape == (4, 5, 2)
    np.testing.assert_array_equal(both[2, 3], threefry.fold_in(threefry.fold_in(threefry.key(3), 2), 3))


@pytest.mark.takes_seconds("shape2")
@pytest.mark.parametrize("shape", [(6,), (2, 3), (2, 3, 4)])
def test_bits_of_a_shape_are_the_flat_bits_reshaped(shape: tuple[int, ...]) -> None:
    flat = threefry.bits(threefry.key(11), int(np.prod(shape)))
    np.testing.assert_array_equal(flat.reshape(shape), np.asarray(jax.random.bits(jax_key(11), shape)))


def test_constants_are_pinned() -> None:
    """A change of the generator changes every run ever recorded; the vectors are Random123's."""
    np.testing.assert_array_equal(threefry.bits(threefry.key(0), 2), [4070199207, 4202968722])
    np.testing.assert_array_equal(
        threefry.block(np.zeros(2, np.uint32), np.uint32(0), np.uint32(0)), [0x6B200159, 0x99BA4EFE]
    )
    ones = np.uint32(0xFFFFFFFF)
    np.testing.assert_array_equal(threefry.block(np.full(2, ones, np.uint32), ones, ones), [0x1CB996FC, 0xBB002BE7])
    pi = np.array([0x13198A2E, 0x03707344], np.uint32)
    np.testing.assert_array_equal(
        threefry.block(pi, np.uint32(0x243F6A88), np.uint32(0x85A308D3)), [0xC4923A9C, 0x483DF7A0]
    )


@given(seed=words)
@quick(20)
def test_uniform_stays_inside_the_open_interval(seed: int) -> None:
    draws = threefry.uniform(threefry.key(seed), 500)
    assert draws.dtype == np.float64
    assert 0.0 < draws.min() <= draws.max() < 1.0


def test_uniform_of_the_extreme_words_is_inside_the_open_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threefry, "bits", lambda key, n: np.array([0, 2**32 - 1], np.uint32))
    assert threefry.uniform(threefry.key(0), 2).tolist() == [2.0**-33, 1 - 2.0**-33]


@given(seed=words, n=st.integers(0, 300))
@quick(30)
def test_permutation_holds_every_index_once(seed: int, n: int) -> None:
    order = threefry.permutation(threefry.key(seed), n)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(n))


@pytest.mark.parametrize("n", [1, 7, 3000, 6000, threefry.PIECE + 1])
def test_permutations_of_several_keys_are_each_the_order_that_sorts_its_draws(n: int) -> None:
    """Drawn together while they are short, one by one beyond."""
    keys = threefry.fold_in(threefry.key(3), np.arange(4))
    for key, order in zip(keys, threefry.permutations(keys, n), strict=True):
        np.testing.assert_array_equal(order, np.argsort(threefry.bits(key, n), kind="stable"))


@pytest.mark.takes_seconds
def test_many_bits_equal_jax_over_every_piece() -> None:
    n = 3 * threefry.PIECE + 5
    np.testing.assert_array_equal(threefry.bits(threefry.key(9), n), np.asarray(jax.random.bits(jax_key(9), (n,))))


def test_permutation_keeps_the_order_of_equal_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = np.array([[5, 3, 5, 3, 5]], np.uint32)
    monkeypatch.setattr(threefry, "block", lambda key, high, low: (draws, np.zeros_like(draws)))
    assert threefry.permutation(threefry.key(0), 5).tolist() == [1, 3, 0, 2, 4]


@pytest.mark.parametrize(("rate", "threshold"), [(0.0, 0), (0.25, 2**30), (0.5, 2**31), (1 - 2.0**-40, 2**32 - 1)])
def test_keep_threshold_is_the_rate_in_units_of_a_word(rate: float, threshold: int) -> None:
    assert threefry.keep_threshold(rate) == threshold
