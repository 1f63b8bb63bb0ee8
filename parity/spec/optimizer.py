"""Specifications of the optimizer of a run: one class for each row of `parity.state.OPTIMIZERS`.

Adam, AdamW and SGD are written out, in the words that files had before there were others; the class of every other
one is made from its row, so that a new row is all that a spec needs to name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Union

from parity.errors import SpecError
from parity.spec.values import require, require_at_least_zero, require_numbers, require_positive
from parity.state import OPTIMIZERS, OptimizerKind, optimizer_kind

__all__ = ["LATER", "OPTIMIZER_SPECS", "AdamSpec", "GroupSpec", "OptimizerBase", "OptimizerSpec", "SgdSpec"]

LATER: Mapping[str, bool] = {"later": True}
"""Metadata of a field that came after files had been written: texts, and the hash of a run, leave it out where it has
its default, so that a run of before keeps its identity."""

Decay = Literal["all", "matrices"]


@dataclass(frozen=True, kw_only=True)
class GroupSpec:
    """A parameter group: which parameters it takes, and what it has of its own.

    Raises:
        SpecError: A value is out of range; names the field.
    """

    names: tuple[str, ...] = ()
    """Patterns of parameter names, as of a shell (`*.bias`), one of which must match; none for any name."""
    ndim: tuple[int, ...] = ()
    """Numbers of axes, `[2]` for matrices; none for any. A group without conditions takes what the others leave."""
    lr: float = -1.0
    """Its peak learning rate; below 0 for the optimizer's."""
    weight_decay: float = -1.0
    """Its decay; below 0 for the optimizer's."""

    def __post_init__(self) -> None:
        require_numbers(self, "optimizer.groups")


class OptimizerBase:
    """What every optimizer of a spec has."""

    kind: str
    """Name in `parity.state.OPTIMIZERS`, in lower case."""
    lr: float
    groups: tuple[GroupSpec, ...]

    @property
    def row(self) -> OptimizerKind:
        """Return what torch's class of this name takes and keeps."""
        return optimizer_kind(self.kind)

    @property
    def decay(self) -> Decay:
        """Return which parameters decay; all of them where nothing says otherwise."""
        return "all"

    def arguments(self) -> dict[str, Any]:
        """Return the arguments under the names, and in the forms, that torch's class takes.

        Example:
            >>> AdamSpec(beta1=0.8).arguments()["betas"]
            (0.8, 0.999)
        """
        return {name: getattr(self, name) for name in self.row.arguments if hasattr(self, name)}

    def _check_groups(self) -> None:
        """Refuse groups that say what has no effect."""
        where = "optimizer.groups"
        plain = self.decay == "all" or not self.groups
        require(plain, "optimizer.decay", f"has no effect beside {where}; give a group weight_decay = 0.0")
        decays = "weight_decay" in self.row.arguments or all(group.weight_decay < 0 for group in self.groups)
        require(decays, where, f"{self.row.name} has no weight_decay")
        rest = [group for group in self.groups if not (group.names or group.ndim)]
        require(len(rest) < 2, where, f"{len(rest)} groups have no condition; one can take what the others leave")


@dataclass(frozen=True, kw_only=True)
class AdamSpec(OptimizerBase):
    """Adam (`adam`: L2 decay added to the gradient) or AdamW (`adamw`: decoupled decay), as in torch.optim.

    Raises:
        SpecError: A value is out of range, or does not fit another one; names the field.
    """

    kind: Literal["adam", "adamw"] = "adamw"
    lr: float = 1e-3
    """Peak learning rate; the schedule multiplies it by a factor."""
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 1e-2
    decay: Decay = "all"
    """Which parameters decay: `all`, or `matrices`, those with two or more axes."""
    amsgrad: bool = field(default=False, metadata=LATER)
    """Whether to divide by the largest second moment so far."""
    maximize: bool = field(default=False, metadata=LATER)
    groups: tuple[GroupSpec, ...] = field(default=(), metadata=LATER)
    """Parameter groups of their own; what none of them takes forms one more, with the arguments above."""

    def __post_init__(self) -> None:
        self._check_groups()
        require_numbers(self, "optimizer")
        require_positive(self, "optimizer", "lr", "eps")
        for name in ("beta1", "beta2"):
            require(0 <= getattr(self, name) < 1, f"optimizer.{name}", "must be in [0, 1)")
        require_at_least_zero(self, "optimizer", "weight_decay")

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that torch's class takes."""
        return {**super().arguments(), "betas": (self.beta1, self.beta2)}


@dataclass(frozen=True, kw_only=True)
class SgdSpec(OptimizerBase):
    """SGD with optional momentum, optional Nesterov, and L2 decay added to the gradient.

    Raises:
        SpecError: A value is out of range, or does not fit another one; names the field.
    """

    kind: Literal["sgd"] = "sgd"
    lr: float = 1e-2
    momentum: float = 0.9
    """Momentum in [0, 1); 0 means that there is no momentum buffer."""
    nesterov: bool = False
    weight_decay: float = 0.0
    decay: Decay = "all"
    dampening: float = field(default=0.0, metadata=LATER)
    """1 minus the weight of the gradient that enters the momentum."""
    maximize: bool = field(default=False, metadata=LATER)
    groups: tuple[GroupSpec, ...] = field(default=(), metadata=LATER)

    def __post_init__(self) -> None:
        self._check_groups()
        require_numbers(self, "optimizer")
        require_positive(self, "optimizer", "lr")
        require(0 <= self.momentum < 1, "optimizer.momentum", "must be in [0, 1)")
        require_at_least_zero(self, "optimizer", "weight_decay", "dampening")
        require(not self.nesterov or self.momentum > 0, "optimizer.nesterov", "needs a momentum above 0")
        plain = not self.nesterov or self.dampening == 0
        require(plain, "optimizer.dampening", "must be 0 with nesterov")


class _RowSpec(OptimizerBase):
    """An optimizer whose class is made from its row."""

    def __post_init__(self) -> None:
        self._check_groups()
        require_numbers(self, "optimizer")
        require_positive(self, "optimizer", "lr")
        signed = ("beta2_decay", "ns_coefficients")
        numbers = [name for name, default in self.row.arguments.items() if name not in signed and default is not None]
        require_at_least_zero(self, "optimizer", *numbers)
        try:
            self.row.resolve(self.arguments())
        except SpecError as error:
            name = error.field.rpartition(".")[2]
            raise SpecError(f"optimizer.{name}", str(error).removeprefix(f"{error.field}: ")) from error

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that torch's class takes; TOML has no None, so a pair that lacks one is shorter."""
        found = super().arguments()
        for name, default in self.row.arguments.items():
            if isinstance(default, tuple) and default[0] is None and len(found[name]) == len(default) - 1:
                found[name] = (None, *found[name])
        return found


def _class_of(row: OptimizerKind) -> type[OptimizerBase]:
    """Return the class of the specs of an optimizer: its arguments under torch's names, with torch's defaults."""
    fields = [("kind", Literal[row.name.lower()], row.name.lower())]
    fields += [(name, *_field(name, default)) for name, default in row.arguments.items()]
    if "weight_decay" in row.arguments:
        fields.append(("decay", Decay, "all"))
    made = make_dataclass(
        f"{row.name}Spec",
        [
            *((name, hint, field(default=default)) for name, hint, default in fields),
            ("groups", tuple[GroupSpec, ...], field(default=(), metadata=LATER)),
        ],
        bases=(_RowSpec,),
        namespace={"__doc__": f"{row.name}, with the arguments of `parity.state.OPTIMIZERS`."},
        frozen=True,
        kw_only=True,
    )
    made.__module__ = __name__
    return made


def _field(name: str, default: Any) -> tuple[Any, Any]:
    """Return the type and the default of the field of an argument."""
    if isinstance(default, tuple):
        return tuple[float, ...], tuple(float(one) for one in default if one is not None)
    if name == "adjust_lr_fn":
        return Literal["original", "match_rms_adamw"], "original"
    whole = isinstance(default, bool) or name == "ns_steps"
    return (type(default), default) if whole else (float, float(default))


_WRITTEN_OUT = ("Adam", "AdamW", "SGD")
OPTIMIZER_SPECS: Mapping[str, type[OptimizerBase]] = {
    "adam": AdamSpec,
    "adamw": AdamSpec,
    "sgd": SgdSpec,
    **{name.lower(): _class_of(row) for name, row in OPTIMIZERS.items() if name not in _WRITTEN_OUT},
}
"""Kind to the class of its specs."""

if TYPE_CHECKING:
    OptimizerSpec: TypeAlias = OptimizerBase
else:
    OptimizerSpec = Union[tuple(dict.fromkeys(OPTIMIZER_SPECS.values()))]  # noqa: UP007 - `|` takes no tuple
