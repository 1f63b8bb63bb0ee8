"""Differences that are meant: what the caller of a check says is no loss, and why, as the verdict shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from parity.errors import SpecError

__all__ = ["Meant"]


class Meant:
    """Patterns of paths or components that are not judged, each with its reason.

    Args:
        patterns: Pattern to reason. `*` stands for any text; a pattern also takes what lies below its path.

    Raises:
        SpecError: A pattern or a reason is empty or no text.

    Example:
        >>> meant = Meant({"timer": "wall clock", "state.pt: elapsed": "wall clock"})
        >>> meant.takes("timer.total", "loss"), meant.takes("timers", "loss")
        (True, False)
    """

    def __init__(self, patterns: Mapping[str, str] | None = None) -> None:
        if patterns is not None and not isinstance(patterns, Mapping):
            raise SpecError("ignore", f"must map paths or components to reasons, got {patterns!r}")
        self.patterns = dict(patterns or {})
        self._used: set[str] = set()
        for pattern, reason in self.patterns.items():
            if not isinstance(pattern, str) or not pattern.strip():
                raise SpecError("ignore", f"must map paths or components to reasons, got the pattern {pattern!r}")
            if not isinstance(reason, str) or not reason.strip():
                raise SpecError("ignore", f"{pattern!r} needs a reason, which the verdict shows; got {reason!r}")

    def takes(self, path: str, component: str) -> bool:
        """Return whether a value is not judged."""
        for pattern in self.patterns:
            below = path.startswith(pattern) and path[len(pattern) : len(pattern) + 1] in ("", ".", "[", ":")
            if below or fnmatchcase(path, pattern.replace("[", "[[]")) or component == pattern:
                self._used.add(pattern)
                return True
        return False

    def paths(self, leaves: Iterable[tuple[str, str]]) -> frozenset[str]:
        """Return the paths that are not judged, of pairs of a path and its component."""
        return frozenset(path for path, component in leaves if self.takes(path, component))

    @property
    def unused(self) -> list[str]:
        """Return the patterns that no value had: mostly a misspelt path."""
        return [pattern for pattern in self.patterns if pattern not in self._used]
