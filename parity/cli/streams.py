"""Standard output and error that can be lost: a closed pipe, a full disk, a terminal that is gone.

A command whose result cannot be read must not end with the exit code of a verdict, and training must not end at all.
So while a command runs, both streams are wrapped. What becomes of a failed write is one policy for a command: `end`
raises `StreamLost`, which unwinds the command; `mute` says so once and drops what is written from then on.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, Literal, cast

__all__ = ["Policy", "StreamLost", "Streams", "end_by_pipe", "mute_lost_streams"]

Policy = Literal["end", "mute"]


class StreamLost(BaseException):
    """A standard stream takes no more; no `Exception`, so that no check takes it for its own.

    Attributes:
        pipe: Whether its reader is gone, which is no error: `head` has read enough.
    """

    def __init__(self, name: str, error: OSError) -> None:
        self.pipe = error.errno == errno.EPIPE
        super().__init__(f"{name}: {error.strerror or error}")


class Stream:
    """One standard stream, for the duration of a command; what is not about writing is the stream's own."""

    def __init__(self, stream: IO[str], name: str, policy: Policy) -> None:
        self.policy = policy
        self._stream, self._name = stream, name
        self._lost = False

    def write(self, text: str) -> int:
        """Write text; returns its length, also when it was dropped."""
        self._try(lambda: self._stream.write(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines, which bring their own newlines."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Hand on what is buffered."""
        self._try(self._stream.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _try(self, act: Callable[[], object]) -> None:
        if self._lost:
            return
        try:
            act()
        except OSError as error:
            self._lost = True
            _divert(self._stream)
            lost = StreamLost(self._name, error)
            if self.policy == "end":
                raise lost from error
            if sys.stderr is not self:
                print(f"parity: warning: {lost}; continuing without it", file=sys.stderr)


def _divert(stream: IO[str]) -> None:
    """Let the file of a stream lead to nothing: else what is buffered fails once more when Python ends (exit 120)."""
    with suppress(OSError, ValueError):  # a stream in memory has no file
        handle = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(handle, stream.fileno())
        finally:
            os.close(handle)
        stream.flush()


class Streams:
    """Wraps standard output and error; a context manager that flushes both at its end."""

    def __init__(self) -> None:
        self._before = sys.stdout, sys.stderr

    def __enter__(self) -> Streams:
        out, err = (stream or open(os.devnull, "w") for stream in self._before)  # noqa: SIM115 - None: `>&-`
        self._own = Stream(out, "standard output", "end"), Stream(err, "standard error", "end")
        sys.stdout, sys.stderr = (cast(Any, stream) for stream in self._own)
        return self

    def set_policy(self, policy: Policy) -> None:
        """Choose what becomes of a write that fails; `end` until then."""
        for stream in self._own:
            stream.policy = policy

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Flush, so that a failure is found here and not when Python ends.

        Raises:
            StreamLost: What was buffered could not be written.
        """
        try:
            for stream in self._own:
                stream.flush()
        finally:
            self.set_policy("mute")  # a handler of a library may hold on to one
            sys.stdout, sys.stderr = self._before


def mute_lost_streams() -> None:
    """Have the running command end no more when a stream is lost: it ends anyway, and has more to write elsewhere."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, Stream):
            stream.policy = "mute"


def end_by_pipe() -> None:
    """End this process as tools end whose reader is gone: by SIGPIPE, which Python ignores otherwise."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.raise_signal(signal.SIGPIPE)
