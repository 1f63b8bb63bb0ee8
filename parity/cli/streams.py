"""Standard output and error that tolerate failed writes: a closed pipe, a full disk, a terminal that was closed.

A command whose output is lost must not end with the exit code of a verdict, and training must continue. So both
streams are wrapped while a command runs. Each command has one policy for a failed write: `end` raises `StreamLost`,
which ends the command; `mute` prints one warning and discards further output.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import IO, Any, Literal, cast

__all__ = ["Policy", "StreamLost", "Streams", "end_by_pipe", "mute_lost_streams"]

Policy = Literal["end", "mute"]


class StreamLost(BaseException):
    """A write to a standard stream failed; not an `Exception`, so that no check reports it as its own failure.

    Attributes:
        pipe: Whether the stream is a pipe whose reader has ended, such as `head`, which is not an error.
    """

    def __init__(self, name: str, error: OSError) -> None:
        self.pipe = error.errno == errno.EPIPE
        super().__init__(f"{name}: {error.strerror or error}")


class Stream:
    """A standard stream with a policy for failed writes; all other attributes are those of the stream itself."""

    def __init__(self, stream: IO[str], name: str, policy: Policy) -> None:
        self.policy = policy
        self._stream, self._name = stream, name
        self._lost = False

    def write(self, text: str) -> int:
        """Write text, and return its length, also when the text was discarded."""
        self._try(lambda: self._stream.write(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines that end with their own newlines."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write what is buffered."""
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
    """Redirect the file of a stream to /dev/null: otherwise Python fails to write its buffer at exit (code 120)."""
    with suppress(OSError, ValueError):  # a stream in memory has no file
        handle = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(handle, stream.fileno())
        finally:
            os.close(handle)
        stream.flush()


class Streams:
    """A context manager that wraps standard output and error, and flushes both at its end."""

    def __init__(self) -> None:
        self._before = sys.stdout, sys.stderr

    def __enter__(self) -> Streams:
        out, err = (stream or open(os.devnull, "w") for stream in self._before)  # noqa: SIM115 - None: `>&-`
        self._own = Stream(out, "standard output", "end"), Stream(err, "standard error", "end")
        sys.stdout, sys.stderr = (cast(Any, stream) for stream in self._own)
        return self

    def set_policy(self, policy: Policy) -> None:
        """Set the policy for failed writes, which is `end` at first."""
        for stream in self._own:
            stream.policy = policy

    def __exit__(self, *_: object) -> None:
        """Flush both streams, so that a failure is found here and not when Python exits.

        Raises:
            StreamLost: Buffered text could not be written.
        """
        try:
            for stream in self._own:
                stream.flush()
        finally:
            self.set_policy("mute")  # the log handler of a library may keep a reference
            sys.stdout, sys.stderr = self._before


def mute_lost_streams() -> None:
    """Set the policy `mute` for a command that a signal is ending anyway, so that it can still write its files."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, Stream):
            stream.policy = "mute"


def end_by_pipe() -> None:
    """End this process by SIGPIPE, which Python ignores by default, as tools do whose reader has ended."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.raise_signal(signal.SIGPIPE)
