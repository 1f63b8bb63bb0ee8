"""The optimizers of torch.optim as data: arguments with defaults and ranges, and the state that each keeps.

Both sides read this table: `jax_side.optim` builds transformations from it, the conversions of state name slots by
it. A test compares it with the signatures and the state of the installed torch.optim.
"""

from __future__ import annotations

from collections.abc import Mapping

from parity.errors import SpecError, UnknownNameError
from parity.state.optimizer_kinds import OptimizerKind, Slot

__all__ = ["OPTIMIZERS", "optimizer_kind"]

_FIRST = Slot(name="first_moment", key="exp_avg")
_SECOND = Slot(name="second_moment", key="exp_avg_sq")
_MAXIMUM = Slot(name="second_moment_maximum", key="max_exp_avg_sq", when="amsgrad")
_BETA = {"betas": (0.9, 0.999), "eps": 1e-8}
_ALL = ("foreach", "capturable", "differentiable", "fused")

_KINDS = (
    OptimizerKind(
        name="SGD",
        arguments={
            "lr": 1e-3,
            "momentum": 0,
            "dampening": 0,
            "weight_decay": 0,
            "nesterov": False,
            "maximize": False,
        },
        slots=(Slot(name="momentum", key="momentum_buffer", when="momentum"),),
        flags=("foreach", "differentiable", "fused"),
        counts=False,
    ),
    OptimizerKind(
        name="Adam",
        arguments={
            "lr": 1e-3,
            **_BETA,
            "weight_decay": 0,
            "amsgrad": False,
            "maximize": False,
            "decoupled_weight_decay": False,
        },
        slots=(_FIRST, _SECOND, _MAXIMUM),
        flags=_ALL,
    ),
    OptimizerKind(
        name="AdamW",
        arguments={"lr": 1e-3, **_BETA, "weight_decay": 1e-2, "amsgrad": False, "maximize": False},
        slots=(_FIRST, _SECOND, _MAXIMUM),
        flags=_ALL,
    ),
    OptimizerKind(
        name="NAdam",
        arguments={
            "lr": 2e-3,
            **_BETA,
            "weight_decay": 0,
            "momentum_decay": 4e-3,
            "decoupled_weight_decay": False,
            "maximize": False,
        },
        slots=(Slot(name="momentum_product", key="mu_product", form="scalar", start=1.0), _FIRST, _SECOND),
    ),
    OptimizerKind(
        name="RAdam",
        arguments={
            "lr": 1e-3,
            **_BETA,
            "weight_decay": 0,
            "decoupled_weight_decay": False,
            "maximize": False,
        },
        slots=(_FIRST, _SECOND),
    ),
    OptimizerKind(
        name="Adamax",
        arguments={"lr": 2e-3, **_BETA, "weight_decay": 0, "maximize": False},
        slots=(_FIRST, Slot(name="infinity_norm", key="exp_inf")),
    ),
    OptimizerKind(
        name="RMSprop",
        arguments={
            "lr": 1e-2,
            "alpha": 0.99,
            "eps": 1e-8,
            "weight_decay": 0,
            "momentum": 0,
            "centered": False,
            "maximize": False,
        },
        slots=(
            Slot(name="second_moment", key="square_avg"),
            Slot(name="momentum", key="momentum_buffer", when="momentum"),
            Slot(name="first_moment", key="grad_avg", when="centered"),
        ),
    ),
    OptimizerKind(
        name="Adagrad",
        arguments={
            "lr": 1e-2,
            "lr_decay": 0,
            "weight_decay": 0,
            "initial_accumulator_value": 0,
            "eps": 1e-10,
            "maximize": False,
        },
        slots=(Slot(name="sum_of_squares", key="sum", start="initial_accumulator_value"),),
        flags=("foreach", "differentiable", "fused"),
        eager=True,
    ),
    OptimizerKind(
        name="Adadelta",
        arguments={"lr": 1.0, "rho": 0.9, "eps": 1e-6, "weight_decay": 0, "maximize": False},
        slots=(Slot(name="second_moment", key="square_avg"), Slot(name="squared_updates", key="acc_delta")),
    ),
    OptimizerKind(
        name="Rprop",
        arguments={"lr": 1e-2, "etas": (0.5, 1.2), "step_sizes": (1e-6, 50), "maximize": False},
        slots=(Slot(name="previous_gradient", key="prev"), Slot(name="step_size", key="step_size")),
    ),
    OptimizerKind(
        name="ASGD",
        arguments={
            "lr": 1e-2,
            "lambd": 1e-4,
            "alpha": 0.75,
            "t0": 1e6,
            "weight_decay": 0,
            "maximize": False,
        },
        slots=(
            Slot(name="rate", key="eta", form="scalar"),
            Slot(name="average_weight", key="mu", form="scalar", start=1.0),
            Slot(name="average", key="ax"),
        ),
        inexact={
            "foreach": "foreach=True, as foreach=None on a GPU, computes the rate of a step in float32, which moves "
            "a loss in float64 by about 1e-8; the exact call is that of foreach=False"
        },
    ),
    OptimizerKind(
        name="Adafactor",
        arguments={
            "lr": 1e-2,
            "beta2_decay": -0.8,
            "eps": (None, 1e-3),
            "d": 1.0,
            "weight_decay": 0.0,
            "maximize": False,
        },
        slots=(
            Slot(name="row_variance", key="row_var", form="rows"),
            Slot(name="column_variance", key="col_var", form="columns"),
            Slot(name="variance", key="variance", form="unfactored"),
        ),
        flags=("foreach",),
        elementwise=False,
    ),
    OptimizerKind(
        name="Muon",
        arguments={
            "lr": 1e-3,
            "weight_decay": 0.1,
            "momentum": 0.95,
            "nesterov": True,
            "ns_coefficients": (3.4445, -4.7750, 2.0315),
            "eps": 1e-7,
            "ns_steps": 5,
            "adjust_lr_fn": None,
        },
        slots=(Slot(name="momentum", key="momentum_buffer"),),
        flags=(),
        counts=False,
        elementwise=False,
    ),
    OptimizerKind(
        name="Lion",
        arguments={"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.0, "maximize": False},
        slots=(Slot(name="momentum", key="exp_avg"),),
        flags=(),
        counts=False,
        in_torch=False,
    ),
)
OPTIMIZERS: Mapping[str, OptimizerKind] = {kind.name: kind for kind in _KINDS}
"""Class name to kind."""

REFUSED = {
    "LBFGS": "it calls the loss several times in a step, so its steps are not a function of one gradient; "
    "optax.lbfgs is another line search",
    "SparseAdam": "it updates the rows of sparse gradients only, and JAX has no sparse gradients; use Adam",
}
"""Class of torch.optim to the reason why there is no counterpart."""


def optimizer_kind(name: str) -> OptimizerKind:
    """Return a kind by its class name, in any case of letters.

    Raises:
        SpecError: It has no counterpart; says why.
        UnknownNameError: There is no such optimizer; lists those there are.

    Example:
        >>> optimizer_kind("nadam").name
        'NAdam'
    """
    names = {known.lower(): known for known in (*OPTIMIZERS, *REFUSED)}
    known = names.get(name.lower(), name)
    if known in REFUSED:
        raise SpecError(known, f"has no counterpart in JAX: {REFUSED[known]}")
    if known not in OPTIMIZERS:
        raise UnknownNameError("optimizer", name, OPTIMIZERS)
    return OPTIMIZERS[known]
