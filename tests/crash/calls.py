"""The text that strace writes, read back as system calls with their real bytes.

Strings come as hexadecimal (`-xx`), so that none of them can hold a quote, a comma or a bracket; descriptors carry
the path they stand for (`-y`); a call that another thread interrupts comes in two lines, which are joined here.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["Call", "Descriptor", "TraceError", "read_calls"]


class TraceError(Exception):
    """The trace says something that the model of a crash has no place for: a result would prove nothing."""


@dataclass(frozen=True)
class Descriptor:
    """A file descriptor as strace shows it."""

    number: int
    """-100 for the working directory."""
    path: str
    """What it stood for at that moment; empty when strace did not say."""


@dataclass
class Call:
    """One system call."""

    thread: int
    name: str
    text: str
    """Everything between the outer brackets, as strace wrote it."""
    started: int
    """Line on which it began."""
    ended: int = -1
    """Line on which its result stands; another thread's lines may lie between."""
    result: int | None = None
    """None while it is under way, and for a call that its process did not live to see the end of."""
    error: str = ""
    """Name of the error, empty after a success."""

    @property
    def arguments(self) -> list[str]:
        """Return the arguments as strace wrote them; brackets keep theirs together."""
        return list(_split(self.text))


def read_calls(lines: Iterable[str]) -> Iterator[tuple[bool, Call]]:
    """Read a trace: every call comes out twice, as it begins (True) and as it ends, in the order of the lines.

    Raises:
        TraceError: A line is none of strace's.
    """
    open_calls: dict[int, Call] = {}
    for number, line in enumerate(lines, 1):
        head = _LINE.match(line.rstrip("\n"))
        if head is None:
            raise TraceError(f"line {number} is not one of strace's: {line[:80]!r}")
        thread, rest = int(head[1]), head[2]
        if rest.startswith(("+++", "---")):  # an exit, a signal
            continue
        if resumed := _RESUMED.match(rest):
            call = open_calls.pop(thread, None)
            if call is None or call.name != resumed[1]:
                raise TraceError(f"line {number} resumes a {resumed[1]} that never began")
            _finish(call, call.text + resumed[2], number)
            yield False, call
            continue
        begun = _BEGUN.match(rest)
        if begun is None:
            raise TraceError(f"line {number} is no call: {rest[:80]!r}")
        call = Call(thread, begun[1], begun[2], number)
        if begun[2].endswith("<unfinished ...>"):
            call.text = begun[2].removesuffix("<unfinished ...>").rstrip()
            open_calls[thread] = call
            yield True, call
        else:
            _finish(call, begun[2], number)
            yield True, call
            yield False, call


def text_of(argument: str) -> bytes:
    """Return the bytes of a string argument.

    Raises:
        TraceError: It is no string, or strace cut it short.
    """
    found = _STRING.fullmatch(argument)
    if found is None:
        raise TraceError(f"expected a whole string, got {argument[:60]!r}{'...' * (len(argument) > 60)}")
    return bytes.fromhex(found[1].replace("\\x", ""))


def descriptor_of(argument: str) -> Descriptor:
    """Return a descriptor argument, or the directory that a path is relative to.

    Raises:
        TraceError: It is none.
    """
    found = _DESCRIPTOR.fullmatch(argument)
    if found is None:
        raise TraceError(f"expected a descriptor, got {argument[:60]!r}")
    number = -100 if found[1] == "AT_FDCWD" else int(found[1])
    return Descriptor(number, _path(found[2] or ""))


def vector_of(argument: str) -> bytes:
    """Return the joined bytes of the buffers that `writev` takes."""
    pieces = _BUFFER.findall(argument)
    if argument != "[" + ", ".join(whole for whole, _ in pieces) + "]":
        raise TraceError(f"expected buffers, got {argument[:60]!r}")
    return b"".join(text_of(text) for _, text in pieces)


_LINE = re.compile(r"(\d+) +(.*)")
_RESUMED = re.compile(r"<\.\.\. (\w+) resumed>(.*)")
_BEGUN = re.compile(r"(\w+)\((.*)")
_ENDED = re.compile(r"(.*)\) += (-?\d+|0x[0-9a-f]+|\?)(?:<[^>]*>(?:\(deleted\))?)?(?: ([A-Z]+\w*))?(?: \(.*\)| .*)?")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_DESCRIPTOR = re.compile(r"(-?\d+|AT_FDCWD)(?:<([^>]*)>(?:\(deleted\))?)?")
_SIGNS = re.compile(r"[\[\](){},]")
_BUFFER = re.compile(r'(\{iov_base=("[^"]*"(?:\.\.\.)?), iov_len=\d+\})')


def _finish(call: Call, text: str, line: int) -> None:
    found = _ENDED.fullmatch(text)
    if found is None:
        raise TraceError(f"line {line}: a {call.name} without a result: {text[-80:]!r}")
    call.text, call.ended = found[1].rstrip(), line
    call.result = None if found[2] == "?" else int(found[2], 0)
    call.error = (found[3] or "unknown") if call.result is not None and call.result < 0 else ""


def _path(shown: str) -> str:
    if re.fullmatch(r"(?:\\x[0-9a-f]{2})+", shown):
        return bytes.fromhex(shown.replace("\\x", "")).decode(errors="surrogateescape")
    return ""  # a pipe, a socket: nothing with a name


def _split(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for sign in _SIGNS.finditer(text):
        if sign[0] in "[{(":
            depth += 1
        elif sign[0] in "]})":
            depth -= 1
        elif depth == 0:
            yield text[start : sign.start()].strip()
            start = sign.end()
    if text[start:].strip():
        yield text[start:].strip()
