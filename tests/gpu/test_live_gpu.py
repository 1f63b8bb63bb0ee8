"""The resume check and the checks of two trainers on a GPU: what it holds is seen, what it loses is named.

They run where a GPU is; elsewhere they are left out by name (`tests/gpu/conftest.py`), never counted as passed.
"""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import pytest
import torch

import parity
from parity.checks.running.inline import InlineRunner
from parity.checks.running.run import Request
from tests.gpu.loops import FAULTS, train_atomics, train_cuda
from tests.live import jax_trainers
from tests.ports import pair_nnx


@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
@pytest.mark.parametrize("mode", ["inline", "process"])
def test_a_loop_on_the_device_resumes_exactly(mode: Any, narrow: str) -> None:
    train = partial(train_cuda, narrow=narrow)
    found = parity.resumes(train, steps=24, stop_at=14, mode=mode)
    assert (found.verdict, found.mode) == ("holds", mode), found.text()
    assert found.frameworks


@pytest.mark.parametrize("lost", FAULTS)
def test_what_the_device_loses_is_named(lost: str) -> None:
    found = parity.resumes(partial(train_cuda, lost=lost), steps=24, stop_at=14, mode="inline")
    assert found.verdict == "broken", found.text()
    assert found.components[0].startswith(FAULTS[lost]), found.text()


def test_looking_draws_nothing_from_the_device_and_leaves_every_bit(tmp_path: Path) -> None:
    with InlineRunner(train_cuda) as runner:
        trace = runner.run(tmp_path / "seen", Request(steps=8, options={"steps": 8}))
    assert trace.end == "finished", trace.error
    leaves = trace.marks[-1].snapshot.leaves
    assert leaves["torch.cuda.default_generators[0]"].component == "rng.cuda"
    assert "@cuda:0" in leaves["model.0.weight"].kind
    torch.manual_seed(0)
    (tmp_path / "alone").mkdir()
    list(train_cuda(tmp_path / "alone", steps=8))
    seen, alone = (torch.load(tmp_path / one / "state.pt", weights_only=True) for one in ("seen", "alone"))
    for name, value in seen["model"].items():
        assert torch.equal(value, alone["model"][name]), name
    assert torch.equal(seen["cuda"], alone["cuda"])


def test_additions_in_no_fixed_order_are_no_pass_and_no_loss() -> None:
    """A trainer that is not deterministic by itself: equal runs differ, and the verdict says where."""
    found = parity.resumes(train_atomics, steps=24, stop_at=14, mode="inline")
    assert found.verdict != "broken", found.text()


@pytest.mark.parametrize("train", [jax_trainers.train_nnx, jax_trainers.train_linen])
def test_jax_on_the_device_resumes_exactly(train: Any) -> None:
    assert jax.devices()[0].platform == "gpu"
    found = parity.resumes(train, steps=24, stop_at=14, mode="inline")
    assert found.verdict == "holds", found.text()


def test_pytorch_and_its_port_train_alike_on_the_device() -> None:
    with jax.enable_x64(True):
        found = parity.twins_agree(pair_nnx.train_torch, pair_nnx.train_nnx, steps=12, mode="inline", seeds=1)
    assert found.verdict == "holds", found.text()
