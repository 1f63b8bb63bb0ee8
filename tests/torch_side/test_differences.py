"""What PyTorch does by default and the suite must not rely on, shown and shown closed."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_side
from parity.spec import ScheduleSpec, override
from parity.twins import rates
from tests.support.small import NAMES, bits_of, small
from torch_side.model import BatchNorm
from torch_side.numerics import autocast, configure
from torch_side.optimizer import build_optimizer, build_scheduler, clip_gradients

CPU = torch.device("cpu")


def test_a_trainer_with_the_default_threads_does_not_get_those_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PyTorch's number of threads is the process's: what a trainer sets stays set."""
    before = torch.get_num_threads()
    monkeypatch.setattr("torch_side.numerics.DEFAULT_THREADS", 2)
    try:
        for asked, got in ((1, 1), (0, 2), (3, 3)):
            configure(small("mlp-digits", "float32", f"execution.threads={asked}"))
            assert torch.get_num_threads() == got
    finally:
        torch.set_num_threads(before)


def test_torch_has_no_optimizer_state_before_the_first_update_and_the_export_has_zeros() -> None:
    trainer = torch_side.build(small("mlp-digits"))
    assert trainer.optimizer.state_dict()["state"] == {}
    state = trainer.export_state()
    assert state.scalars["optimizer.step"] == 0
    for slot in ("first_moment", "second_moment"):
        leaves = state.group(f"optimizer.{slot}")
        assert set(leaves) == set(state.group("model.params"))
        assert all(not value.any() for value in leaves.values())


@pytest.mark.parametrize("name", NAMES)
def test_a_start_with_explicit_zeros_takes_the_same_steps_as_one_without(name: str) -> None:
    """Zero moments with step 0 are the absent entry: no dampening, no first-step exception."""
    spec = small(name)
    plain, imported = torch_side.build(spec), torch_side.build(spec)
    imported.import_state(plain.export_state())
    assert bits_of(list(plain.steps(4))) == bits_of(list(imported.steps(4)))


@pytest.mark.parametrize("train", [True, False])
def test_batch_norm_is_pytorch_s_own_bit_for_bit_and_asks_no_module_for_its_mode(train: bool) -> None:
    own, ours = torch.nn.BatchNorm2d(3), BatchNorm(3)
    x = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    for module in (own, ours):
        module.running_mean, module.running_var = torch.full((3,), 0.3), torch.full((3,), 1.7)
    own.train(train)
    ours.train(not train)
    assert torch.equal(ours(x, train=train), own(x))
    for name, value in own.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value), name


def test_unequal_step_counts_cannot_stand_for_one_and_are_refused() -> None:
    trainer = torch_side.build(small("mlp-digits"))
    list(trainer.steps(2))
    first = next(iter(trainer.model.parameters()))
    trainer.optimizer.state[first]["step"] += 1
    with pytest.raises(ValueError, match=r"optimizer\.step: differs between parameters: .*'layers\.0\.weight': 3"):
        trainer.export_state()


@pytest.mark.parametrize("kind", ["constant", "linear", "cosine"])
def test_the_scheduler_gives_the_shared_rates_bit_for_bit_and_stays_behind_the_horizon(kind: str) -> None:
    spec = override(small("mlp-digits"), [f"schedule.kind={kind}", "schedule.warmup=3", "schedule.horizon=20"])
    optimizer = build_optimizer(spec, torch.nn.Linear(2, 2), CPU)
    scheduler = build_scheduler(spec, optimizer)
    seen = []
    for _ in range(40):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert seen == rates(spec.schedule, spec.optimizer.lr, 0, 40).tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("max_norm", [0.0, 1e-3, 1.0, 1e9])
@pytest.mark.parametrize("factor", [1e-30, 1.0, 1e30, float("inf"), float("nan")])
def test_gradients_are_clipped_as_by_torch_bit_for_bit(dtype: torch.dtype, max_norm: float, factor: float) -> None:
    generator = torch.Generator().manual_seed(1)
    shapes: list[tuple[int, ...]] = [(300, 70), (70,), (8, 1, 3, 3), (1,), (0,), ()]
    ours, others = ([nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in [*shapes, (5,)]] for _ in range(2))
    for a, b in zip(ours[:-1], others[:-1], strict=True):  # the last has no gradient
        a.grad = torch.randn(a.shape, dtype=dtype, generator=generator) * factor
        b.grad = a.grad.clone()
    norm = clip_gradients(ours, max_norm)
    if max_norm:
        expected = nn.utils.clip_grad_norm_(others, max_norm)
    else:
        expected = nn.utils.get_total_norm([p.grad for p in others if p.grad is not None])
    assert norm.numpy().tobytes() == expected.numpy().tobytes()
    for a, b in zip(ours[:-1], others[:-1], strict=True):
        assert a.grad is not None
        assert b.grad is not None
        assert a.grad.numpy().tobytes() == b.grad.numpy().tobytes()
    assert ours[-1].grad is None


def test_chained_schedulers_of_torch_drift_from_their_closed_form() -> None:
    """Recursive updates carry rounding and a hand-edited rate along; the closed form carries nothing."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)
    drift = 0.0
    closed = rates(ScheduleSpec(horizon=1000), 1e-3, 0, 1000)
    for step in range(1000):
        drift = max(drift, abs(optimizer.param_groups[0]["lr"] / closed[step] - 1))
        optimizer.step()
        scheduler.step()
    assert 1e-16 < drift < 1e-9


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_autocast_lowers_products_and_the_models_keep_norms_and_softmax_exact(precision: Any) -> None:
    with autocast(precision, CPU):
        low = F.linear(torch.ones(2, 2), torch.ones(2, 2))
    assert low.dtype == getattr(torch, precision)
    for name, kinds in (("gpt-text", torch.nn.LayerNorm), ("cnn-digits", torch.nn.BatchNorm2d)):
        trainer, seen = torch_side.build(small(name, precision)), []

        def note(module: Any, inputs: Any, output: Any, seen: list[Any] = seen) -> None:
            seen.append((inputs[0].dtype, output.dtype))

        for module in trainer.model.modules():
            if isinstance(module, kinds):
                module.register_forward_hook(note)
        record = next(iter(trainer.steps(1)))
        assert set(seen) == {(torch.float32, torch.float32)}, name
        assert np.isfinite(record.loss)
        assert {p.dtype for p in trainer.model.parameters()} == {torch.float32}


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_full_precisions_are_not_autocast(precision: Any) -> None:
    with autocast(precision, CPU):
        assert not torch.is_autocast_enabled("cpu")


def test_the_fused_optimizer_equals_the_plain_one() -> None:
    """The spec's optimizers are fused where the device has it; the arithmetic is torch.optim's own."""
    torch.manual_seed(0)
    spec = override(small("mlp-digits", "float64"), ["optimizer.weight_decay=0.1"])
    fused, plain = torch.nn.Linear(5, 3).double(), torch.nn.Linear(5, 3).double()
    plain.load_state_dict(fused.state_dict())
    ours = build_optimizer(spec, fused, CPU)
    assert ours.defaults["fused"]
    reference = torch.optim.AdamW(plain.parameters(), lr=spec.optimizer.lr, weight_decay=0.1, foreach=False)
    for _ in range(20):
        for p, q in zip(fused.parameters(), plain.parameters(), strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        ours.step()
        reference.step()
    for p, q in zip(fused.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-14, atol=1e-15)


def test_native_dropout_draws_from_the_global_generator_and_the_shared_one_does_not() -> None:
    for generator, moved in (("native", True), ("shared", False)):
        trainer = torch_side.build(small("mlp-digits", "float32", f"dropout.generator={generator}"))
        before = torch.get_rng_state()
        list(trainer.steps(1))
        assert bool((torch.get_rng_state() != before).any()) is moved
