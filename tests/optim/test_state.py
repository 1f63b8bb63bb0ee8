"""State of every optimizer from torch to Optax and back bit for bit; handed over in the middle, training goes on."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

import jax_side.optim
import torch_side.optim
from jax_side.optim import Leaves, by_name, optimizer_of
from parity.errors import SpecError, StateError, UnknownNameError
from parity.state import GroupRule, NeutralOptimizer, TrainingState, unpack_schedule
from tests.optim.test_exact import EDGES
from tests.optim.walks import IN_TORCH, QUICK, jax_loss, nested, shapes_for, start, torch_loss, torch_optimizer

LATE = {"second.bias": 2, "second.weight": 3}
"""Parameters that get no gradient before this step."""
NEVER = "first.bias"
"""A parameter that never gets one."""


def has_gradient(name, step):
    return name != NEVER and step >= LATE.get(name, 0)


def modules(name, dtype=torch.float64, **more):
    begin = start(7, shapes_for(name))
    params = {k: torch.nn.Parameter(torch.from_numpy(v).to(dtype)) for k, v in begin.items()}
    half = len(params) // 2
    groups = [
        {"params": list(params.values())[:half], "lr": 0.02},
        {"params": list(params.values())[half:], "weight_decay": 0.0}
        if "weight_decay" in EDGES[name]
        else {"params": list(params.values())[half:]},
    ]
    return params, torch_optimizer(name, groups, **EDGES[name], **more)


def torch_steps(params, optimizer, steps):
    for step in steps:
        optimizer.zero_grad()
        torch_loss(params).backward()
        for name, p in params.items():
            if not has_gradient(name, step):
                p.grad = None
        optimizer.step()


GRADIENTS = jax.jit(jax.grad(jax_loss), compiler_options=QUICK)


def jax_steps(tx, params, state, steps):
    update = jax.jit(tx.update, compiler_options=QUICK)
    for step in steps:
        grads = GRADIENTS(params)
        grads = {k: g if has_gradient(k, step) else None for k, g in grads.items()}
        updates, state = update(grads, state, params)
        params = optax.apply_updates(params, updates)
    return params, state


def same_state_dict(one, other):
    """Return whether two state_dicts are equal: every key, every dtype, every bit."""
    assert one["param_groups"] == other["param_groups"]
    assert one["state"].keys() == other["state"].keys()
    for at, entry in one["state"].items():
        assert entry.keys() == other["state"][at].keys()
        for key, value in entry.items():
            theirs = other["state"][at][key]
            assert (value.dtype, value.shape) == (theirs.dtype, theirs.shape), key
            assert value.numpy().tobytes() == theirs.numpy().tobytes(), key


@pytest.fixture
def default_dtype(request):
    """Have torch count, and keep NAdam's product and ASGD's rate, in another dtype."""
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(torch.float32)


BOTH_DEFAULTS = [
    pytest.param(name, dtype, marks=pytest.mark.soak if quiet else (), id=f"{name}-{dtype}")
    for name in IN_TORCH
    for dtype, quiet in ((torch.float32, False), (torch.float64, name not in ("NAdam", "ASGD")))
]


@pytest.mark.parametrize(("name", "default_dtype"), BOTH_DEFAULTS, indirect=["default_dtype"])
def test_a_state_dict_goes_to_optax_and_back_bit_for_bit_and_training_goes_on(name, default_dtype, exact_muon):
    """Handed over at step 4 and back at step 6, with late and never used parameters in two groups."""
    params, optimizer = modules(name)
    torch_steps(params, optimizer, range(4))
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]  # as a scheduler adds it
    neutral = torch_side.optim.to_neutral(optimizer, params.items())
    counts = {str(value.dtype) for leaf, value in neutral.arrays.items() if leaf.startswith("optimizer.step.")}
    assert counts <= {str(default_dtype).removeprefix("torch.")}
    with jax.enable_x64(True):
        options = {"iteration_dtype": "float64"} if name == "Muon" else {}
        arrays = nested({k: p.detach().numpy() for k, p in params.items()})
        tx = optimizer_of(neutral, **options)
        state = jax_side.optim.from_neutral(tx, neutral, arrays)
        back = jax_side.optim.to_neutral(tx, state, arrays)
        copies, other = modules(name)
        torch_side.optim.from_neutral(back, other, copies.items())
        same_state_dict(optimizer.state_dict(), other.state_dict())
        moved, state = jax_steps(tx, arrays, state, range(4, 6))
        after = jax_side.optim.to_neutral(tx, state, moved)
    for k, p in copies.items():
        p.data = torch.from_numpy(np.array(moved[k]))
    torch_side.optim.from_neutral(after, other, copies.items())
    torch_steps(copies, other, range(6, 8))
    torch_steps(params, optimizer, range(4, 8))
    for k, p in params.items():
        np.testing.assert_allclose(copies[k].detach().numpy(), p.detach().numpy(), rtol=1e-12, atol=1e-14)
    one, two = optimizer.state_dict()["state"], other.state_dict()["state"]
    assert one.keys() == two.keys()


def test_a_layout_of_its_own_is_transposed():
    """Adafactor's rows are JAX's columns where a kernel is transposed; the steps are torch's all the same."""
    generator = np.random.default_rng(3)
    kernel = generator.normal(size=(5, 3))
    weight = torch.nn.Parameter(torch.from_numpy(kernel.T.copy()))
    optimizer = torch.optim.Adafactor([weight], lr=0.1)
    with jax.enable_x64(True):
        leaves = Leaves(names={"layer.kernel": "layer.weight"}, axes={"layer.weight": (1, 0)})
        tx = jax_side.optim.adafactor(lr=0.1, leaves=leaves)
        params = {"layer": {"kernel": jnp.asarray(kernel)}}
        state = tx.init(params)
        update = jax.jit(tx.update, compiler_options=QUICK)
        for _ in range(3):
            gradient = generator.normal(size=(5, 3))
            weight.grad = torch.from_numpy(gradient.T.copy())
            optimizer.step()
            updates, state = update({"layer": {"kernel": jnp.asarray(gradient)}}, state, params)
            params = optax.apply_updates(params, updates)
        ours = jax_side.optim.to_neutral(tx, state, params)
    theirs = torch_side.optim.to_neutral(optimizer, [("layer.weight", weight)])
    np.testing.assert_allclose(np.asarray(params["layer"]["kernel"]).T, weight.detach().numpy(), rtol=1e-13)
    assert ours.arrays.keys() == theirs.arrays.keys()
    for leaf, value in theirs.arrays.items():
        np.testing.assert_allclose(ours.arrays[leaf], value, rtol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lower_precisions_cross_bit_for_bit(dtype):
    weight = torch.nn.Parameter(torch.randn(3, 2, generator=torch.Generator().manual_seed(1)).to(dtype))
    optimizer = torch.optim.AdamW([weight], amsgrad=True)
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    neutral = torch_side.optim.to_neutral(optimizer, [("w", weight)])
    params = {"w": jnp.asarray(weight.detach().float().numpy()).astype(str(dtype).removeprefix("torch."))}
    tx = optimizer_of(neutral)
    back = jax_side.optim.to_neutral(tx, jax_side.optim.from_neutral(tx, neutral, params), params)
    for leaf, value in neutral.arrays.items():
        assert value.dtype == back.arrays[leaf].dtype
        assert value.tobytes() == back.arrays[leaf].tobytes()


def test_steps_that_are_skipped_and_edges_of_shapes_change_nothing():
    """A masked update leaves state and parameters as they are, bit for bit; bfloat16 and nothing are stepped."""
    params = {"scalar": jnp.float32(-0.0), "empty": jnp.zeros((0, 3)), "one": jnp.ones((1,), jnp.bfloat16)}
    for name in ("AdamW", "Adafactor"):  # the others: test_edges.py
        tx = by_name(name, {"eps": (1e-8, 1e-3)} if name == "Adafactor" else {})
        grads, state = jax.tree.map(jnp.ones_like, params), tx.init(params)
        update = jax.jit(tx.update, compiler_options=QUICK)
        updates, new = update(grads, state, params, mask=jnp.asarray(False))
        after = optax.apply_updates(params, updates)
        for one, two in zip(
            jax.tree.leaves((params, state._replace(count=1))), jax.tree.leaves((after, new)), strict=True
        ):
            assert np.asarray(one).tobytes() == np.asarray(two).astype(np.asarray(one).dtype).tobytes(), name
        updates, new = update(grads, state, params, mask=jnp.asarray(True))
        assert [u.shape for u in jax.tree.leaves(updates)] == [p.shape for p in jax.tree.leaves(params)]
        assert all(np.isfinite(np.asarray(u, np.float32)).all() for u in jax.tree.leaves(updates)), name


RULES = [
    GroupRule(label="matrices", ndim=(2,), arguments={"weight_decay": 0.1}),
    GroupRule(label="others", arguments={"lr": 0.003, "betas": (0.8, 0.9)}),
]


def test_groups_of_one_rule_are_the_same_on_both_sides_each_with_its_own_rate():
    begin = start(8)
    params = {k: torch.nn.Parameter(torch.from_numpy(v.copy())) for k, v in begin.items()}
    optimizer = torch.optim.Adam(torch_side.optim.param_groups(RULES, params.items()), lr=0.01)
    with jax.enable_x64(True):
        tx = jax_side.optim.adam(lr=0.01, groups=RULES)
        arrays = nested(begin)
        state = tx.init(arrays)
        update = jax.jit(tx.update, compiler_options=QUICK)
        for step in range(4):
            torch_steps(params, optimizer, [9])
            rates = {"matrices": optimizer.param_groups[0]["lr"], "others": optimizer.param_groups[1]["lr"]}
            updates, state = update(GRADIENTS(arrays) | {NEVER: None}, state, arrays, learning_rate=rates)
            arrays = optax.apply_updates(arrays, updates)
            optimizer.param_groups[1]["lr"] = 0.01 / (step + 1)
        ours = jax_side.optim.to_neutral(tx, state, arrays, learning_rate={"matrices": 0.01, "others": 0.01 / 4})
    for k, p in params.items():
        np.testing.assert_allclose(np.asarray(arrays[k]), p.detach().numpy(), rtol=1e-12)
    theirs = torch_side.optim.to_neutral(optimizer, params.items())
    assert ours.scalars == theirs.scalars


def test_groups_are_clipped_each_by_its_own_norm():
    begin = start(8)
    with jax.enable_x64(True):
        tx = jax_side.optim.adam(groups=RULES)
        clip = jax_side.optim.clip_by_group_norm({"others": 0.1}, tx)
        params = nested(begin)
        grads, _ = clip.update(params, clip.init(params), params)
    biases = [
        torch.nn.Parameter(torch.zeros(begin[k].shape, dtype=torch.float64)) for k in ("first.bias", "second.bias")
    ]
    for p, k in zip(biases, ("first.bias", "second.bias"), strict=True):
        p.grad = torch.from_numpy(begin[k].copy())
    torch.nn.utils.clip_grad_norm_(biases, 0.1)
    np.testing.assert_allclose(np.asarray(grads["first.bias"]), biases[0].grad.numpy(), rtol=1e-15)
    np.testing.assert_array_equal(np.asarray(grads["first.weight"]), begin["first.weight"])


def test_muon_has_a_companion_for_what_is_no_matrix():
    rules = [
        GroupRule(label="matrices", ndim=(2,)),
        GroupRule(label="others", arguments={"optimizer": "AdamW", "lr": 0.003}),
    ]
    begin = start(9)
    params = {k: jnp.asarray(v) for k, v in begin.items()}
    tx = jax_side.optim.muon(groups=rules)
    step = lambda tx, p: jax.jit(tx.update, compiler_options=QUICK)(p, tx.init(p), p)  # noqa: E731
    updates, state = step(tx, params)
    alone = jax_side.optim.adamw(lr=0.003)
    expected, _ = step(alone, {k: v for k, v in params.items() if v.ndim == 1})
    for k, value in expected.items():
        np.testing.assert_array_equal(np.asarray(updates[k]), np.asarray(value))
    with pytest.raises(StateError, match=r"groups of AdamW and Muon; torch has one optimizer each"):
        jax_side.optim.to_neutral(tx, state, params)


class Own(torch.optim.Adam):
    """A subclass that a team has."""


def of_torch(cls, of=None, **arguments):
    weight = torch.nn.Parameter(torch.zeros(2) if of is None else of)
    return torch_side.optim.to_neutral(cls([weight], **arguments), [("w", weight)])


def updated(**extra):
    params, optimizer = {"w": jnp.ones(2)}, by_name("SGD", {})
    return optimizer.update(params, optimizer.init(params), params, **extra)


def converted(**moved):
    params, optimizer = {"w": jnp.ones(2)}, by_name("SGD", {})
    return jax_side.optim.to_neutral(optimizer, optimizer.init(params), params, **moved)


def restored(**arguments):
    params, optimizer = {"w": jnp.ones(2)}, by_name("SGD", arguments)
    return jax_side.optim.from_neutral(optimizer, converted(), params)


@pytest.mark.breaks_first
@pytest.mark.parametrize(
    ("act", "error", "match"),
    [
        (lambda: jax_side.optim.adam(beta1=0.9), UnknownNameError, "unknown argument of Adam 'beta1'"),
        (lambda: jax_side.optim.muon(fused=True), UnknownNameError, "unknown argument of Muon 'fused'"),
        (lambda: jax_side.optim.adam(betas=(0.9, 1.0)), SpecError, r"Adam.betas: must be two numbers in \[0, 1\)"),
        (lambda: jax_side.optim.sgd(nesterov=True), SpecError, "SGD.nesterov: needs momentum above 0"),
        (lambda: by_name("LBFGS", {}), SpecError, "LBFGS: has no counterpart in JAX: it calls the loss several"),
        (lambda: by_name("SparseAdam", {}), SpecError, "SparseAdam: has no counterpart in JAX: it updates the rows"),
        (lambda: by_name("Adamm", {}), UnknownNameError, "unknown optimizer 'Adamm'; did you mean Adam"),
        (lambda: by_name("Adam", {}).init({"w": jnp.zeros(2, jnp.complex64)}), StateError, "w: expected a floating"),
        (lambda: by_name("Muon", {}).init({"w": jnp.zeros(2)}), StateError, "w: Muon is for matrices"),
        (lambda: of_torch(Own), StateError, "test_state.Own, a subclass of Adam, may take other steps"),
        (lambda: of_torch(torch.optim.LBFGS), SpecError, "LBFGS: has no counterpart"),
        (
            lambda: of_torch(torch.optim.Adam, of=torch.zeros(2, dtype=torch.complex64)),
            StateError,
            "w: is complex; split it in two",
        ),
        (lambda: of_torch(torch.optim.Adam, lr=torch.tensor(0.1)), StateError, "lr: cannot be carried: Tensor"),
        (
            lambda: by_name("Adafactor", {}).init({"a": jnp.zeros(2), "b": jnp.zeros(2, jnp.bfloat16)}),
            StateError,
            "b: Adafactor's first eps follows the dtype",
        ),
        (
            lambda: by_name("Adam", {}, groups=[RULES[0], RULES[0]]).init({"w": jnp.zeros((2, 2))}),
            SpecError,
            "need one label each",
        ),
        (
            lambda: by_name("Adam", {}, groups=RULES).init({"w": jnp.zeros((2, 2))}),
            SpecError,
            "groups: others: takes none of the parameters w",
        ),
        (
            lambda: by_name("Adam", {}, groups=[RULES[0], GroupRule(label="w", names=("w*",))]).init(
                {"w": jnp.zeros((2, 2))}
            ),
            SpecError,
            "groups: w: the rules matrices and w both take it",
        ),
        (
            lambda: updated(rate=1.0),
            UnknownNameError,
            "unknown argument of an update 'rate'; known: betas",
        ),
        (lambda: updated(learning_rate={"rest": 0.1}), SpecError, "no value for the group 'all'; it has: rest"),
        (
            lambda: updated(mask=jnp.ones(2, bool)),
            SpecError,
            r"mask: must be a scalar for each parameter; of w .* \(2,\)",
        ),
        (lambda: restored(lr=lambda count: 0.1), StateError, "lr: is a schedule here; give its position"),
        (lambda: converted(betas=(0.9, 0.99)), UnknownNameError, "unknown argument of SGD 'betas'; known: dampening"),
        (lambda: converted(learning_rate={"rest": 0.1}), StateError, "groups.lr: has no value for the group 'all'"),
        (lambda: unpack_schedule(TrainingState(arrays={})), StateError, "schedule: is missing"),
        (
            lambda: unpack_schedule(TrainingState(arrays={}, scalars={"schedule.step": 3})),
            StateError,
            "schedule: expected an object with groups, position, rule, schema; got .*step",
        ),
        (lambda: by_name("NAdam", {}, scalar_dtype="float64").init({"w": jnp.ones(2)}), SpecError, "needs 64-bit"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(act, error, match):
    with pytest.raises(error, match=match):
        act()


def spoiled(change):
    """Return a whole state of Adam with one thing changed."""
    params, optimizer = modules("Adam")
    torch_steps(params, optimizer, range(4))
    state = torch_side.optim.to_neutral(optimizer, params.items())
    arrays, scalars = dict(state.arrays), dict(state.scalars)
    change(arrays, scalars)
    shapes = {k: tuple(p.shape) for k, p in params.items()}
    return TrainingState(arrays=arrays, scalars=scalars), shapes


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda a, s: a.pop("optimizer.first_moment.first.weight"), r"first_moment.first.weight: is missing"),
        (lambda a, s: a.update({"optimizer.third.first.weight": np.zeros(1)}), "third.first.weight: unexpected leaf"),
        (
            lambda a, s: a.update({"optimizer.second_moment.first.weight": np.zeros(1)}),
            r"second_moment.first.weight: expected shape \(6, 4\), got \(1,\)",
        ),
        (lambda a, s: a.update({"optimizer.step.first.weight": np.float32(0.5)}), "expected a count of at least 0"),
        (lambda a, s: s["optimizer.groups"][0].pop("eps"), "optimizer.groups.0.eps: is missing"),
        (lambda a, s: s["optimizer.groups"][0]["params"].append("x"), "x is no parameter here"),
        (lambda a, s: s["optimizer.groups"][0]["params"].pop(), "is in no group"),
        (lambda a, s: s.pop("optimizer.name"), "optimizer.name: is missing"),
    ],
)
def test_a_state_that_is_not_whole_is_refused_and_the_leaf_named(change, match):
    state, shapes = spoiled(change)
    with pytest.raises(StateError, match=match):
        NeutralOptimizer.unpack(state, shapes)
