"""Where the leaves of a run's state lie on its mesh, on a terminal."""

from __future__ import annotations

from typing import IO

from parity.contract import LeafSplit, StateSplit
from parity.report.layout import Column, print_rows, print_wrapped
from parity.report.terminal import open_console

__all__ = ["print_split"]

_COLUMNS = (
    Column(name="leaf", rank=0, wraps=True),
    Column(name="shape", rank=3),
    Column(name="axes", rank=2, wraps=True),
    Column(name="split along", rank=1, wraps=True),
    Column(name="bytes", rank=4, right=True),
    Column(name="per device", rank=0, right=True),
)


def print_split(found: StateSplit, file: IO[str]) -> None:
    """Print each leaf with its logical axes, the axes of the mesh along which it is split, and its bytes.

    Args:
        found: The leaves.
        file: Where they are printed.
    """
    console = open_console(file)
    sizes = ", ".join(f"{axis} {size}" for axis, size in found.mesh.items())
    print_wrapped(console, f"mesh of {found.devices} {'device' if found.devices == 1 else 'devices'}: {sizes}")
    print_rows(console, _COLUMNS, [_cells(one) for one in found.leaves])
    share = found.device_bytes / found.nbytes
    print_wrapped(
        console, f"{found.nbytes:,} bytes in all, {found.device_bytes:,} on each device ({share:.0%} of the state)"
    )


def _cells(one: LeafSplit) -> tuple[str, ...]:
    split = [" ".join(along) or "-" for along in one.split]
    return (
        one.leaf,
        " x ".join(map(str, one.shape)) or "scalar",
        ", ".join(one.axes) or "-",
        ", ".join(split) if any(one.split) else "whole",
        f"{one.nbytes:,}",
        f"{one.device_bytes:,}",
    )
