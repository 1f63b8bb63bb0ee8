"""The layout of a run's state: the rows of its parameters, its buffers and the slots of its optimizer."""

from __future__ import annotations

from dataclasses import dataclass

from parity.spec import RunSpec
from parity.state import GroupRule
from parity.twins.slots import SlotRows, group_rates, group_rules, is_former, slot_rows
from parity.twins.table import Row, table

__all__ = ["Layout"]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The layout of a run's state: what a side needs beside the state itself to translate it."""

    spec: RunSpec
    params: tuple[Row, ...]
    """Rows of the parameters."""
    buffers: tuple[Row, ...]
    slots: tuple[SlotRows, ...]
    """Slots of the optimizer."""
    groups: tuple[GroupRule, ...]
    """Rules of the parameter groups."""

    @classmethod
    def of(cls, spec: RunSpec) -> Layout:
        """Return the layout of a run."""
        rows = table(spec.model)
        params = tuple(row for row in rows if row.group == "params")
        return cls(
            spec=spec,
            params=params,
            buffers=tuple(row for row in rows if row.group == "buffers"),
            slots=slot_rows(spec, params),
            groups=group_rules(spec.optimizer, {row.name: row.shape for row in params}),
        )

    @property
    def rows(self) -> tuple[Row, ...]:
        """Return all rows, parameters first."""
        return (*self.params, *self.buffers)

    @property
    def dtype(self) -> str:
        """Return the dtype of the floating leaves: `float64` or `float32`."""
        return "float64" if self.spec.precision == "float64" else "float32"

    @property
    def rates(self) -> list[float]:
        """Return the peak rate of each parameter group."""
        return group_rates(self.spec.optimizer, self.groups)

    @property
    def former(self) -> bool:
        """Return whether the run keeps the bits and files of runs of before; see `is_former`."""
        return is_former(self.spec)

    @property
    def counted(self) -> bool:
        """Return whether `optimizer.step` is part of the state.

        It is the updates that every parameter has had. Where PyTorch counts none (SGD, Lion), it is 1 after the first
        one; the former SGD, whose momentum starts as zeros, has no need of it.
        """
        return self.spec.optimizer.row.counts or (bool(self.slots) and not self.former)
