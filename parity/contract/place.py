"""The place of a process among those that train one run together."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Place"]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Address, index and number of the processes."""

    address: str
    """`host:port` of process 0, the same for all."""
    index: int
    """From 0."""
    count: int
    """Processes of the run, at least 2."""

    @property
    def host(self) -> str:
        """Return the host of process 0, without the brackets of an IPv6 address."""
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """Return the port of process 0."""
        return int(self.address.rpartition(":")[2])
