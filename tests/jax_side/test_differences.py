"""Every documented difference between the library's default and PyTorch, shown, and shown closed by our transform."""

import inspect
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
import torch.nn.functional as F
from flax import nnx
from flax.training.dynamic_scale import DynamicScale

import jax_side
import torch_side
from jax_side.dropout import Dropout
from jax_side.model import BatchNorm, Conv3x3, build_model, cross_entropy
from jax_side.numerics import dtypes
from jax_side.optimizer import clip_by_global_norm, scale_by_adam
from jax_side.scaler import ScalerState, update_scaler
from parity.spec import AdamSpec, DropoutSpec, GptSpec, LinearSpec, ScalerSpec, ScheduleSpec, override
from parity.twins import initial_params, rates
from tests.jax_side.twin_tools import float64, jax_walk, logits, relative, torch_walk
from tests.support.small import NAMES, small
from torch_side.dropout import Dropout as TorchDropout
from torch_side.dropout import mask_keys

CLOSED = 1e-14
"""Largest relative difference that counts as none in float64."""

GENERATOR = np.random.default_rng(0)
ROWS = GENERATOR.normal(size=(6, 5))


# Optimizers


def torch_clip(gradient: np.ndarray, largest: float) -> np.ndarray:
    p = torch.zeros(gradient.shape, dtype=torch.float64, requires_grad=True)
    p.grad = torch.tensor(gradient)
    torch.nn.utils.clip_grad_norm_([p], largest)
    return p.grad.numpy()


@pytest.mark.parametrize("norm", [0.02, 1.0, 10.0])
def test_torch_clips_with_an_epsilon_that_optax_has_not(norm: float) -> None:
    gradient = ROWS / np.linalg.norm(ROWS) * norm
    largest = norm / 2
    expected = torch_clip(gradient, largest)
    with float64():
        default, _ = optax.clip_by_global_norm(largest).update(jnp.asarray(gradient), optax.EmptyState())
        ours, _ = clip_by_global_norm(largest).update(jnp.asarray(gradient), optax.EmptyState())
    assert relative(default, expected) == pytest.approx(1e-6 / norm, rel=1e-3)
    assert relative(ours, expected) < CLOSED


def test_torch_shrinks_a_norm_just_below_the_limit_too() -> None:
    gradient = ROWS / np.linalg.norm(ROWS) * (1 - 5e-7)
    expected = torch_clip(gradient, 1.0)
    with float64():
        default, _ = optax.clip_by_global_norm(1.0).update(jnp.asarray(gradient), optax.EmptyState())
        ours, _ = clip_by_global_norm(1.0).update(jnp.asarray(gradient), optax.EmptyState())
    np.testing.assert_array_equal(default, gradient)
    assert relative(expected, gradient) > 1e-7
    assert relative(ours, expected) < CLOSED


ADAM_STEPS = (1, 2, 5, 20, 100)


def adam_steps(transform: Any, dtype: Any) -> dict[int, np.ndarray]:
    """Return the rescaled gradient at some steps, every gradient the same."""
    gradient = jnp.asarray(ROWS, dtype)
    state = transform.init(gradient)
    out = {}
    for step in range(1, max(ADAM_STEPS) + 1):
        updates, state = transform.update(gradient, state)
        if step in ADAM_STEPS:
            out[step] = np.asarray(updates)
    return out


def torch_adam_steps(b2: float) -> dict[int, np.ndarray]:
    """Return the same from torch.optim.Adam in float64: the step divided by minus the learning rate."""
    p = torch.zeros(ROWS.shape, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([p], lr=1.0, betas=(0.9, b2))
    out = {}
    for step in range(1, max(ADAM_STEPS) + 1):
        before = p.detach().clone()
        p.grad = torch.tensor(ROWS)
        optimizer.step()
        if step in ADAM_STEPS:
            out[step] = -(p.detach() - before).numpy()
    return out


@pytest.mark.parametrize("b2", [0.999, 0.9999])
def test_optax_s_bias_correction_is_off_in_float32_and_ours_is_not(b2: float) -> None:
    """1 - b2**t from a float32 b2: 6e-6 of every early update at 0.999, 8e-5 at 0.9999."""
    expected = torch_adam_steps(b2)
    default = adam_steps(optax.scale_by_adam(b2=b2), jnp.float32)
    ours = adam_steps(scale_by_adam(0.9, b2, 1e-8), jnp.float32)
    for step in ADAM_STEPS:
        assert relative(default[step], expected[step]) > 3e-6, step
        assert relative(ours[step], expected[step]) < 2e-6, step


@pytest.mark.parametrize("b2", [0.95, 0.999, 0.9999])
def test_our_bias_correction_equals_torch_s_in_float64(b2: float) -> None:
    expected = torch_adam_steps(b2)
    with float64():
        ours = adam_steps(scale_by_adam(0.9, b2, 1e-8), jnp.float64)
    for step in ADAM_STEPS:
        limit = max(CLOSED, 4e-16 / (1 - b2))  # PyTorch's own 1 - b2**t carries an ulp of one
        assert relative(ours[step], expected[step]) < limit, step


def test_the_default_decay_of_adamw_differs_and_is_never_relied_on() -> None:
    """Optax 1e-4, PyTorch 1e-2: a hundredfold; the spec has its own and passes it."""
    default = inspect.signature(optax.adamw).parameters["weight_decay"].default
    reference = inspect.signature(torch.optim.AdamW.__init__).parameters["weight_decay"].default
    assert (default, reference, AdamSpec().weight_decay) == (1e-4, 1e-2, 1e-2)
    spec = override(small("mlp-digits", "float64"), ["optimizer.weight_decay=0.25", "clip_norm=0"])
    start, still = {"w": ROWS}, [{"w": np.zeros(ROWS.shape)}]
    lr = rates(spec.schedule, spec.optimizer.lr, 0, 1)[0]
    for walk in (jax_walk, torch_walk):
        assert relative(walk(spec, start, still)[0]["w"], ROWS * (1 - lr * 0.25)) < CLOSED


def test_adam_s_decay_enters_the_moments_and_optax_s_chain_order_decides_it() -> None:
    spec = override(
        small("mlp-digits", "float64"), ["optimizer.kind=adam", "optimizer.weight_decay=0.1", "clip_norm=0"]
    )
    start, gradients = {"w": ROWS}, [{"w": ROWS[::-1].copy()}] * 3
    expected = torch_walk(spec, start, gradients)[-1]["w"]
    behind = jax_walk(override(spec, ["optimizer.kind=adamw"]), start, gradients)[-1]["w"]
    assert relative(behind, expected) > 1e-4
    assert relative(jax_walk(spec, start, gradients)[-1]["w"], expected) < CLOSED


@pytest.mark.parametrize("nesterov", [False, True])
def test_the_first_momentum_step_takes_the_whole_gradient_on_both_sides(nesterov: bool) -> None:
    """PyTorch sets the buffer to the gradient; Optax adds to zeros. Dampening, which we have not, would differ."""
    p = torch.zeros(ROWS.shape, dtype=torch.float64, requires_grad=True)
    damped = torch.zeros(ROWS.shape, dtype=torch.float64, requires_grad=True)
    reference = torch.optim.SGD([p], lr=1.0, momentum=0.9, nesterov=nesterov)
    other = torch.optim.SGD([damped], lr=1.0, momentum=0.9, dampening=0.5)
    with float64():
        transform = optax.trace(0.9, nesterov=nesterov)
        state, params = transform.init(jnp.zeros(ROWS.shape)), jnp.zeros(ROWS.shape)
        for step in range(1, 4):
            for q, optimizer in ((p, reference), (damped, other)):
                q.grad = torch.tensor(ROWS * step)
                optimizer.step()
            updates, state = transform.update(jnp.asarray(ROWS * step), state)
            params = params - updates
            assert relative(params, p.detach()) < CLOSED
    assert relative(params, damped.detach()) > 0.1


# Schedules


def test_optax_schedules_are_float32_by_default_and_the_shared_one_never_is() -> None:
    reference = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(reference, T_max=1000)
    for _ in range(50):
        reference.step()
        scheduler.step()
    expected = reference.param_groups[0]["lr"]
    default = optax.cosine_decay_schedule(1e-3, 1000)(jnp.asarray(50, jnp.int32))
    assert default.dtype == jnp.float32
    assert abs(float(default) / expected - 1) > 1e-9
    ours = rates(ScheduleSpec(horizon=1000), 1e-3, 50, 1)
    assert ours.dtype == np.float64
    assert abs(ours[0] / expected - 1) < 1e-13


def test_a_skipped_update_holds_optax_s_schedule_back_and_not_ours() -> None:
    """PyTorch's scheduler steps with every completed step, whether or not the scaler withheld its update."""
    transform = optax.scale_by_schedule(optax.linear_schedule(1.0, 0.0, 10))
    state = transform.init(jnp.zeros(1))
    _, stepped = transform.update(jnp.ones(1), state)
    held = jax.tree.map(lambda new, old: jnp.where(False, new, old), stepped, state)
    assert (int(stepped.count), int(held.count)) == (1, 0)

    spec = small("mlp-digits", "float16", "scaler.overflow_steps=[2, 3]", "schedule.warmup=4")
    expected = rates(spec.schedule, spec.optimizer.lr, 0, 6).tolist()
    for side in (jax_side, torch_side):
        trainer = side.build(spec)
        records = list(trainer.steps(6))
        assert [r.skipped for r in records] == [False, True, True, False, False, False]
        assert [r.lr for r in records] == expected
        state = trainer.export_state().scalars
        assert (state["schedule.step"], state["counters.updates"], state["optimizer.step"]) == (6, 4, 4)


# Loss scaling


def test_flax_grows_the_scale_one_step_later_than_torch() -> None:
    interval = 3
    flax_scale = DynamicScale(growth_interval=interval, scale=1024.0)
    reference = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=interval)
    p = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([p], lr=0.0)
    spec = ScalerSpec(init_scale=1024.0, growth_interval=interval)
    state = ScalerState(jnp.float32(1024.0), jnp.int32(0))
    scales: list[tuple[float, ...]] = []
    for _ in range(8):
        flax_scale = flax_scale.value_and_grad(jnp.sum)(jnp.ones(1)).dynamic_scale
        reference.scale(p.sum()).backward()
        reference.step(optimizer)
        reference.update()
        state = update_scaler(state, spec, jnp.asarray(True))
        scales.append((float(flax_scale.scale), reference.get_scale(), float(state.scale)))
    theirs, torchs, ours = zip(*scales, strict=True)
    assert torchs.index(2048.0) == interval - 1
    assert theirs.index(2048.0) == interval
    assert ours == torchs


# Layers


def test_flax_batch_norm_keeps_the_biased_variance_and_means_the_other_weight_by_momentum() -> None:
    x = GENERATOR.normal(2.0, 3.0, size=(4, 2, 2, 3))
    n = x.size // 3
    reference = torch.nn.BatchNorm2d(3, momentum=0.1).double()
    expected = reference(torch.tensor(x).permute(0, 3, 1, 2)).permute(0, 2, 3, 1).detach().numpy()
    assert reference.running_var is not None
    assert reference.running_mean is not None
    var, mean = reference.running_var.numpy(), reference.running_mean.numpy()
    assert inspect.signature(nnx.BatchNorm.__init__).parameters["momentum"].default == 0.99
    default = nnx.BatchNorm(3, momentum=0.9, rngs=nnx.Rngs(0))
    default(jnp.asarray(x, jnp.float32))
    with float64():
        ours = BatchNorm(3, dtypes("float64"))
        out = ours(jnp.asarray(x), train=True)
        our_var, our_mean = (np.array(v[...]) for v in (ours.var, ours.mean))
        assert int(ours.count[...]) == 1
    gain = np.asarray(x.reshape(-1, 3).var(0))
    np.testing.assert_allclose(default.var[...], 0.9 + 0.1 * gain, rtol=1e-5)
    np.testing.assert_allclose(var, 0.9 + 0.1 * gain * n / (n - 1), rtol=1e-12)
    assert relative(our_var, var) < CLOSED
    assert relative(our_mean, mean) < CLOSED
    assert relative(out, expected) < CLOSED


def test_batch_norm_in_evaluation_equals_torch_and_changes_nothing() -> None:
    x = GENERATOR.normal(size=(4, 2, 2, 3))
    reference = torch.nn.BatchNorm2d(3).double()
    with float64():
        ours = BatchNorm(3, dtypes("float64"))
        for _ in range(3):
            reference(torch.tensor(x).permute(0, 3, 1, 2))
            ours(jnp.asarray(x), train=True)
        before = [np.array(v[...]) for v in (ours.mean, ours.var, ours.count)]
        out = ours(jnp.asarray(x), train=False)
        after = [np.array(v[...]) for v in (ours.mean, ours.var, ours.count)]
    reference.eval()
    expected = reference(torch.tensor(x).permute(0, 3, 1, 2)).permute(0, 2, 3, 1).detach()
    assert relative(out, expected) < CLOSED
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)


def test_layer_norm_epsilon_and_fast_variance_differ_and_ours_do_not() -> None:
    width = 16
    parameters = inspect.signature(nnx.LayerNorm.__init__).parameters
    assert (parameters["epsilon"].default, parameters["use_fast_variance"].default) == (1e-6, True)
    spec = small("gpt-text", "float64")
    x = GENERATOR.normal(size=(4, width)) * 0.1
    expected = F.layer_norm(torch.tensor(x), (width,)).numpy()
    with float64():
        default = nnx.LayerNorm(width, param_dtype=jnp.float64, rngs=nnx.Rngs(0))(jnp.asarray(x))
        ours: Any = build_model(spec)
        out = ours.norm(jnp.asarray(x))
    assert relative(default, expected) > 1e-5
    assert relative(out, expected) < CLOSED
    far = (GENERATOR.normal(size=(4, width)) + 1e4).astype(np.float32)
    expected = F.layer_norm(torch.tensor(far), (width,)).numpy()
    fast = nnx.LayerNorm(width, epsilon=1e-5, rngs=nnx.Rngs(0))(jnp.asarray(far))
    ours = build_model(override(spec, ["precision=float32"]))
    assert relative(fast, expected) > 0.1
    assert relative(ours.norm(jnp.asarray(far)), expected) < 1e-3


def test_flax_gelu_is_the_tanh_form_and_the_model_takes_the_erf_form() -> None:
    x = np.linspace(-5, 5, 1001)
    expected = F.gelu(torch.tensor(x)).numpy()
    with float64():
        default = nnx.gelu(jnp.asarray(x))
        exact = jax.nn.gelu(jnp.asarray(x), approximate=False)
    assert 4e-4 < np.abs(np.asarray(default) - expected).max() < 6e-4
    assert relative(exact, expected) < CLOSED


def test_jax_attention_takes_its_softmax_in_float32_and_the_model_s_does_not() -> None:
    """Also closes the GELU and the LayerNorm of a block: the whole block equals PyTorch's."""
    spec = small("gpt-text", "float64")
    q, k, v = (GENERATOR.normal(size=(2, 8, 2, 8)) for _ in range(3))
    expected = F.scaled_dot_product_attention(*(torch.tensor(a).transpose(1, 2) for a in (q, k, v)), is_causal=True)
    with float64():
        default = jax.nn.dot_product_attention(*(jnp.asarray(a) for a in (q, k, v)), is_causal=True)
    assert relative(default, expected.transpose(1, 2)) > 1e-9
    ours, theirs = jax_side.build(spec), torch_side.build(spec)
    x = GENERATOR.normal(size=(2, 8, 16))
    with float64():
        model: Any = nnx.merge(ours.programs.graphdef, ours.state.params, ours.state.buffers, ours.state.rngs)
        block = np.array(model.blocks[0](jnp.asarray(x), None, train=False))
    with torch.no_grad():
        block_of_torch: Any = theirs.model.blocks[0]  # type: ignore[index]
        reference = block_of_torch(torch.tensor(x), None, train=False).numpy()
    assert relative(block, reference) < CLOSED


def test_convolution_layout_and_padding_differ_and_ours_equals_torch_s() -> None:
    kernel, x = GENERATOR.normal(size=(4, 2, 3, 3)), GENERATOR.normal(size=(2, 2, 6, 6))
    expected = F.conv2d(torch.tensor(x), torch.tensor(kernel), padding=1).numpy()
    assert inspect.signature(nnx.Conv.__init__).parameters["padding"].default == "SAME"
    assert torch.nn.Conv2d(2, 4, 3).padding == (0, 0)
    with float64():
        default = nnx.Conv(2, 4, (3, 3), rngs=nnx.Rngs(0))
        assert default.kernel[...].shape == (3, 3, 2, 4) != kernel.shape
        ours = Conv3x3(2, 4, dtypes("float64"))
        ours.kernel[...] = jnp.asarray(kernel.transpose(2, 3, 1, 0))
        out = np.array(ours(jnp.asarray(x.transpose(0, 2, 3, 1))))
    assert relative(out.transpose(0, 3, 1, 2), expected) < CLOSED


def test_flattening_channels_last_is_another_order_and_the_model_takes_torch_s() -> None:
    x = np.arange(2 * 3 * 2 * 2, dtype=np.float64).reshape(2, 3, 2, 2)
    expected = torch.tensor(x).flatten(1).numpy()
    last = x.transpose(0, 2, 3, 1)
    assert (last.reshape(2, -1) != expected).any()
    np.testing.assert_array_equal(last.transpose(0, 3, 1, 2).reshape(2, -1), expected)
    images = GENERATOR.uniform(size=(5, 64))
    assert relative(*logits(small("cnn-digits", "float64"), images)) < CLOSED


def test_optax_cross_entropy_is_a_vector_and_ours_is_torch_s_mean() -> None:
    scores, targets = GENERATOR.normal(size=(4, 3, 7)) * 10, GENERATOR.integers(0, 7, (4, 3)).astype(np.int32)
    expected = F.cross_entropy(torch.tensor(scores).flatten(0, 1), torch.tensor(targets).long().flatten())
    with float64():
        default = optax.softmax_cross_entropy_with_integer_labels(jnp.asarray(scores), jnp.asarray(targets))
        ours = cross_entropy(jnp.asarray(scores), jnp.asarray(targets), dtypes("float64"))
    assert default.shape == (4, 3)
    assert ours.shape == ()
    assert relative(ours, expected) < CLOSED


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_the_loss_of_low_precision_logits_is_computed_in_float32_on_both_sides(precision: Any) -> None:
    scores = GENERATOR.normal(size=(64, 10)).astype(np.float32) * 5
    targets = GENERATOR.integers(0, 10, 64).astype(np.int32)
    low = torch.tensor(scores).to(getattr(torch, precision))
    ours = cross_entropy(jnp.asarray(scores).astype(precision), jnp.asarray(targets), dtypes(precision))
    theirs = torch_side.model.cross_entropy(low, torch.tensor(targets).long(), torch_side.numerics.dtypes(precision))
    assert ours.dtype == jnp.float32
    assert theirs.dtype == torch.float32
    assert relative(ours, theirs) < 3e-7
    narrow = optax.softmax_cross_entropy_with_integer_labels(
        jnp.asarray(scores).astype(precision), jnp.asarray(targets)
    ).mean()
    assert relative(narrow, theirs) > 1e-5


def test_flax_starts_are_not_torch_s_and_ours_are_the_shared_ones() -> None:
    linear = nnx.Linear(400, 300, rngs=nnx.Rngs(0))
    embedding = nnx.Embed(1000, 64, rngs=nnx.Rngs(0))
    assert linear.bias is not None
    assert float(jnp.abs(linear.bias[...]).max()) == 0.0
    assert float(linear.kernel[...].std()) == pytest.approx(1 / math.sqrt(400), rel=0.02)  # PyTorch: / sqrt(3)
    assert float(embedding.embedding[...].std()) == pytest.approx(1 / 8, rel=0.02)  # PyTorch: 1
    for name in NAMES:
        spec = small(name)
        state = jax_side.build(spec).export_state()
        for leaf, value in initial_params(spec.model, spec.seed).items():
            np.testing.assert_array_equal(state.arrays[f"model.params.{leaf}"], value)


def test_an_index_outside_the_table_is_an_error_in_torch_alone_and_inside_it_both_agree() -> None:
    """Data are bytes below the vocabulary, so the silent case cannot come up."""
    table = GENERATOR.normal(size=(5, 3))
    with pytest.raises(IndexError, match="index out of range"):
        F.embedding(torch.tensor([5]), torch.tensor(table))
    outside = jnp.asarray(table.astype(np.float32))[jnp.asarray([5])]
    assert outside.shape == (1, 3)
    spec = small("gpt-text", "float64")
    assert isinstance(spec.model, GptSpec)
    assert spec.model.vocabulary == 256
    ids = GENERATOR.integers(0, 256, (2, 8)).astype(np.int32)
    assert relative(*logits(spec, ids)) < CLOSED


@pytest.mark.parametrize("extra", [[], ["model.tied=true"]])
@pytest.mark.parametrize("name", NAMES)
def test_whole_models_agree_in_float64(name: str, extra: list[str]) -> None:
    """With every difference of the layers closed, nothing is left but rounding."""
    if extra and name != "gpt-text":
        extra = ["dropout.rate=0"]
    spec = small(name, "float64", *extra)
    width = spec.model.inputs if isinstance(spec.model, LinearSpec) else 64
    ids, features = GENERATOR.integers(0, 256, (3, 8)).astype(np.int32), GENERATOR.uniform(size=(3, width))
    x = ids if isinstance(spec.model, GptSpec) else features
    assert relative(*logits(spec, x)) < CLOSED


def test_the_subgradient_of_relu_at_zero_is_zero_as_in_torch() -> None:
    x = torch.zeros(1, requires_grad=True)
    F.relu(x).sum().backward()
    assert x.grad is not None
    assert float(jax.grad(lambda a: jnp.maximum(a, 0.0))(0.0)) == 0.5
    assert float(jax.grad(jax.nn.relu)(0.0)) == float(x.grad) == 0.0


# Randomness


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(4, 16), (2, 8, 16)])
def test_dropout_keeps_the_same_elements_on_both_sides(shape: tuple[int, ...], rate: float) -> None:
    """Every step, micro-batch and layer has its own mask; the native generators would not agree."""
    spec, seed = DropoutSpec(rate=rate), 2**32 - 1
    x = GENERATOR.normal(size=shape).astype(np.float32) + 10
    steps = np.array([0, 1, 7], np.int32)
    keys = mask_keys(seed, steps, 2, 3)
    seen = set()
    for i, step in enumerate(steps):
        for micro in range(2):
            key = jax_side.dropout.mask_keys(seed, jnp.int32(step), jnp.int32(micro))
            for layer in range(3):
                ours = np.array(Dropout(spec, layer, nnx.Rngs(0))(jnp.asarray(x), key, train=True))
                theirs = TorchDropout(spec, layer)(torch.tensor(x), keys[i, micro], train=True).numpy()
                np.testing.assert_array_equal(ours, theirs)
                assert np.mean(ours == 0) == pytest.approx(rate, abs=5 * math.sqrt(rate * (1 - rate) / x.size))
                seen.add((ours == 0).tobytes())
    assert len(seen) == len(steps) * 2 * 3


def test_native_masks_differ_between_the_sides() -> None:
    native, x = DropoutSpec(rate=0.5, generator="native"), np.ones((8, 32), np.float32)
    torch.manual_seed(0)
    keys = mask_keys(0, np.array([0], np.int32), 1, 1)[0, 0]
    theirs = TorchDropout(native, 0)(torch.tensor(x), keys, train=True).numpy()
    key = jax_side.dropout.mask_keys(0, jnp.int32(0), jnp.int32(0))
    ours = np.array(Dropout(native, 0, nnx.Rngs(dropout=0))(jnp.asarray(x), key, train=True))
    assert (ours != theirs).any()


def test_evaluation_drops_nothing() -> None:
    x = np.ones((4, 4), np.float32)
    for generator in ("shared", "native"):
        spec = DropoutSpec(rate=0.5, generator=generator)  # type: ignore[arg-type]
        np.testing.assert_array_equal(np.array(Dropout(spec, 0, nnx.Rngs(0))(jnp.asarray(x), None, train=False)), x)
        np.testing.assert_array_equal(TorchDropout(spec, 0)(torch.tensor(x), None, train=False).numpy(), x)


def test_torch_rounds_float64_to_float16_twice_and_numpy_once() -> None:
    above = np.array([1 + 2.0**-11 + 2.0**-40])  # above the middle of two float16, which float32 rounds it to
    once, twice = above.astype(np.float16), above.astype(np.float32).astype(np.float16)
    assert once != twice
    assert torch.from_numpy(above).to(torch.float16).numpy() == twice
    with float64():  # XLA does either, as the processor has it; by way of float32 it is always PyTorch's
        assert np.asarray(jnp.asarray(above).astype("float16")) in (once, twice)
        assert np.asarray(jnp.asarray(above).astype("float32").astype("float16")) == twice
