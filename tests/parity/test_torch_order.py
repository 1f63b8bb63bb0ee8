"""The order of PyTorch's loaders in NumPy: equal to torch's own, bit for bit, and read by Grain from any place."""

import grain
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, TensorDataset

from parity import DistributedOrder, LoaderOrder, OrderedSource, TorchGenerator
from parity.errors import SpecError


def theirs(n, seed):
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed)).numpy()


SEEDS = (0, 1, 42, 2**31, 2**32 - 1, 2**32, 2**63 - 1, -1, -(2**40) - 5)


@pytest.mark.parametrize("seed", SEEDS)
def test_permutations_are_torchs_one_after_the_other(seed):
    ours, theirs = TorchGenerator(seed), torch.Generator().manual_seed(seed)
    for n in (0, 1, 2, 3, 7, 31, 32, 33, 623, 624, 625, 626, 1000, 4096):
        assert np.array_equal(ours.randperm(n), torch.randperm(n, generator=theirs).numpy()), n
        assert ours.random() == torch.empty((), dtype=torch.int64).random_(generator=theirs).item()
        assert np.array_equal(ours.randint(n + 1, n % 40), torch.randint(n + 1, (n % 40,), generator=theirs).numpy())


@pytest.mark.parametrize("n", [25_000, 300_001])
def test_long_permutations_are_torchs(n):
    assert np.array_equal(TorchGenerator(n).randperm(n), theirs(n, n))


def test_random_sizes_and_seeds():
    draws = np.random.default_rng(0)
    for _ in range(200):
        n, seed = int(draws.integers(0, 3000)), int(draws.integers(0, 2**63))
        assert np.array_equal(TorchGenerator(seed).randperm(n), theirs(n, seed))


@pytest.mark.parametrize("drawn", [0, 1, 5, 622, 623, 624, 625, 1247, 1248, 1249])
def test_a_generator_goes_on_from_a_state_of_torch(drawn):
    theirs = torch.Generator().manual_seed(3)
    torch.randint(10, (drawn,), generator=theirs)
    ours = TorchGenerator.from_state(theirs.get_state())
    for n in (5, 700):
        assert np.array_equal(ours.randperm(n), torch.randperm(n, generator=theirs))


def read(loader, epochs):
    return [np.concatenate([batch[0].numpy() for batch in loader]).tolist() for _ in range(epochs)]


def ours(order, epochs):
    return [order.epoch(number).tolist() for number in range(epochs)]


def data(size):
    return TensorDataset(torch.arange(size))


@pytest.mark.parametrize("size", [1, 5, 64, 1000])
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.soak)])
def test_a_loader_with_a_generator(size, workers):
    loader = DataLoader(data(size), 8, shuffle=True, generator=torch.Generator().manual_seed(9), num_workers=workers)
    assert ours(LoaderOrder(size, TorchGenerator(9)), 3) == read(loader, 3)


@pytest.mark.parametrize("size", [5, 300])
def test_a_loader_of_the_default_generator_by_its_seed_and_by_its_state(size):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        torch.randn(7)
        state = torch.get_rng_state()
        wanted = read(DataLoader(data(size), 8, shuffle=True), 3)
        assert ours(LoaderOrder(size, TorchGenerator.from_state(state), given=False), 3) == wanted
        torch.manual_seed(4)
        wanted = read(DataLoader(data(size), 8, shuffle=True), 2)
        assert ours(LoaderOrder(size, TorchGenerator(4), given=False), 2) == wanted


def test_what_else_draws_from_the_default_generator_shows_between_epochs():
    """Why the page says where not: a single draw of a dropout gives every later epoch another order."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        loader = DataLoader(data(50), 8, shuffle=True)
        first = read(loader, 1)[0]
        torch.rand(1)
        second = read(loader, 1)[0]
    order = LoaderOrder(50, TorchGenerator(4), given=False)
    assert order.epoch(0).tolist() == first
    assert order.epoch(1).tolist() != second


@pytest.mark.parametrize("several", [None, 3, 40, 64, 100])
@pytest.mark.parametrize("replacement", [False, True])
def test_a_sampler_of_its_own(several, replacement):
    sampler = RandomSampler(range(40), replacement, several, generator=torch.Generator().manual_seed(2))
    order = LoaderOrder(40, TorchGenerator(2), sampled=True, replacement=replacement, num_samples=several)
    assert ours(order, 3) == [list(sampler) for _ in range(3)]


@pytest.mark.parametrize("size", [3, 10, 101])
@pytest.mark.parametrize("replicas", [1, 2, 4, 7])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_ranks_of_a_distributed_sampler(size, replicas, drop_last):
    for rank in range(replicas):
        sampler = DistributedSampler(range(size), replicas, rank, seed=5, drop_last=drop_last)
        order = DistributedOrder(size, 5, replicas=replicas, rank=rank, drop_last=drop_last)
        for number in range(3):
            sampler.set_epoch(number)
            assert order.epoch(number).tolist() == list(sampler)
            assert len(sampler) == order.each


@pytest.mark.parametrize("stop", [0, 3, 6, 11])
@pytest.mark.parametrize(("size", "drop_last"), [(48, False), (50, True)])
def test_the_position_of_a_loader_goes_over_to_grain(stop, size, drop_last):
    """PyTorch reads some batches and stops; Grain goes on at that index, over the end of an epoch."""
    loader = DataLoader(data(size), 8, shuffle=True, drop_last=drop_last, generator=torch.Generator().manual_seed(1))
    batches = [batch[0].tolist() for _ in range(3) for batch in loader]
    source = OrderedSource(np.arange(size), LoaderOrder(size, TorchGenerator(1)), epochs=3, batch=8)
    reader = iter(grain.MapDataset.source(source).batch(8).to_iter_dataset())
    reader.set_state({**reader.get_state(), "next_index": stop})
    assert [batch.tolist() for batch in reader] == batches[stop:]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: TorchGenerator(0.5), "whole number of 64 bits"),
        (lambda: TorchGenerator(2**64), "whole number of 64 bits"),
        (lambda: TorchGenerator(0).randperm(2**28), "must be a whole number from 0"),
        (lambda: TorchGenerator(0).randint(0, 3), "must be from 1"),
        (lambda: TorchGenerator.from_state(np.zeros(16, np.uint8)), "Philox"),
        (lambda: TorchGenerator.from_state(np.zeros(5056, np.uint8)), "no state of MT19937"),
        (lambda: LoaderOrder(0, TorchGenerator(0)), "at least 1"),
        (lambda: LoaderOrder(3, TorchGenerator(0), num_samples=0), "at least 1"),
        (lambda: DistributedOrder(3, replicas=2, rank=2), "must be from 0 to 1"),
        (lambda: OrderedSource("abc", LoaderOrder(3, TorchGenerator(0)), epochs=1, batch=4), "batches of 1 to 3"),
    ],
)
def test_what_cannot_be_used_is_refused(make, said):
    with pytest.raises(SpecError, match=said):
        make()
