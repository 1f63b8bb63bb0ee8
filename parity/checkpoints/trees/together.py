"""Processes that save or restore one tree together: what they tell each other, and how all learn that one has failed.

Every call is one that all of them make, in the same order. What one does alone is attempted, and the others hear how
it ended before any of them goes on: so a failure ends all of them with the same words, which name the process, and
nobody waits for one that has given up.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from parity import storage
from parity.errors import CheckpointError, DamagedError, SaveError, StateError
from parity.state import LeafDigest, Order, SharedLeaf, digest_together

__all__ = [
    "TOGETHER_AT_A_STORE",
    "HeldArray",
    "HeldPiece",
    "SavingGroup",
    "agree",
    "attempt",
    "attempt_alike",
    "attempt_told",
    "digest_held",
]

TOGETHER_AT_A_STORE = (
    "several processes save to a directory that they all see, and not to a place at a store; a tree that lies in one "
    "process is saved there by that one"
)

Acted = TypeVar("Acted")


class SavingGroup(Protocol):
    """The processes that save or restore together, as one of them sees them."""

    @property
    def index(self) -> int:
        """Return the number of this process; process 0 makes directories, seals and commits."""

    @property
    def count(self) -> int:
        """Return the number of processes; at least two."""

    @property
    def beside(self) -> SavingGroup:
        """Return the same processes for a thread beside the one that computes, which asks for it."""

    def exchange(self, value: Any, /) -> list[Any]:
        """Return the values of all processes, in their order; each gives one, which must be JSON.

        Raises:
            CheckpointError: A process is gone.
        """

    def close(self, why: str = "") -> None:
        """End what a thread beside the one that computes tells the others.

        Args:
            why: What this process failed by, where the others may be waiting for it and can be told.
        """


@dataclass(frozen=True)
class HeldPiece:
    """A box of an array that is in this process."""

    start: tuple[int, ...]
    """Index of its first element in the whole array."""
    values: NDArray[np.generic]
    """Its elements, with the axes of the whole array; of a type that NumPy does not know, as bytes."""
    copy: str = ""
    """Name of the copy of the array that it belongs to: the boxes of one copy cover the array, each element once."""
    writes: bool = True
    """Whether this process writes it, of those that hold the same box."""


@dataclass(frozen=True)
class HeldArray:
    """What this process holds of an array that lies in several."""

    shape: tuple[int, ...]
    """Of the whole array."""
    dtype: str
    pieces: tuple[HeldPiece, ...]
    """What is here; a process may hold nothing."""
    live: Any
    """The array in the framework's own terms."""

    @property
    def nbytes(self) -> int:
        """Return the bytes that are here."""
        return sum(piece.values.nbytes for piece in self.pieces)

    def digests(self, order: Order) -> dict[str, LeafDigest]:
        """Return name of a copy to the digest of what is here of it."""
        found: dict[str, LeafDigest] = {}
        for piece in self.pieces:
            digest = found.setdefault(piece.copy, LeafDigest(self.shape, self.dtype, order))
            if piece.values.size:
                digest.add(piece.start, piece.values)
        return found


def digest_held(held: Mapping[str, HeldArray], group: SavingGroup, orders: Mapping[str, Order]) -> dict[str, str]:
    """Return leaf to `type digest` of arrays that lie in several processes; all call it with the same names.

    Args:
        held: Name of a leaf in the seal to what is here of it.
        group: The processes.
        orders: Leaf to the order in which its bytes are digested.

    Raises:
        CheckpointError: Copies of a leaf differ, or are not whole.
    """

    def leaf(name: str) -> SharedLeaf:
        one = held[name]
        size = int(np.prod(one.shape, dtype=np.int64)) * 8  # the same everywhere, also where nothing is held
        return SharedLeaf(name, size, lambda: one.digests(orders.get(name, ())))

    try:
        return digest_together(map(leaf, sorted(held)), group.exchange, group.index, group.count)
    except StateError as error:
        raise CheckpointError(f"the parts that processes hold are not one array: {error}") from error


def attempt(
    group: SavingGroup, act: Callable[[], Acted], reason: Callable[[BaseException], str] = storage.reason
) -> Acted:
    """Return what a function returns here, when it has ended in all processes.

    Args:
        group: The processes.
        act: What this process does.
        reason: Returns in one line why it failed.

    Raises:
        CheckpointError: It failed in some process; says in which, and is of the class that it had there.
        SaveError: It failed after the checkpoint had its name.
    """
    made: list[Acted] = []

    def kept() -> None:
        made.append(act())

    attempt_told(group, kept, reason)
    return made[0]


def attempt_told(
    group: SavingGroup, act: Callable[[], Any], reason: Callable[[BaseException], str] = storage.reason
) -> list[Any]:
    """Return what a function returns in each process, when it has ended in all.

    Args:
        group: The processes.
        act: What this process does; returns what is told to all, which must be JSON.
        reason: As of `attempt`.

    Raises:
        CheckpointError: As of `attempt`.
        SaveError: As of `attempt`.
    """
    failure: Exception | None = None
    made: Any = None
    try:
        made = act()
    except Exception as error:  # frameworks have no common error for a full disk
        failure = error
    every = group.exchange([None if failure is None else _packed(failure, reason), made])
    for index, (failed, _) in enumerate(every):
        if failed is not None:
            raise _unpacked(index, failed) from failure
    return [value for _, value in every]


def attempt_alike(
    group: SavingGroup, what: str, given: Mapping[str, str], act: Callable[[], Mapping[str, str]]
) -> str:
    """Have all processes do something that has to come out the same in each; they meet once if it does.

    Args:
        group: The processes.
        what: What they do, for the message.
        given: Name to text, of everything that has to be the same before.
        act: What this process does; returns likewise what has to be the same then.

    Returns:
        A text that is the same in all processes, and that no other call returns.

    Raises:
        CheckpointError: They differ, or it failed in some process; names what, and in which processes.
    """
    failure: Exception | None = None
    own: Mapping[str, str] | None = None
    try:
        own = act()
    except Exception as error:  # as in `attempt_told`
        failure = error
    packed = None if failure is None else _packed(failure, storage.reason)
    every = group.exchange([_digest(given), packed, own and _digest(own), secrets.token_hex(4)])
    if len({before for before, *_ in every}) > 1:
        agree(group, what, given)
    for index, (_, failed, *_) in enumerate(every):
        if failed is not None:
            raise _unpacked(index, failed) from failure
    if len({after for *_, after, _ in every}) > 1:
        agree(group, what, own or {})
    token: str = every[0][-1]
    return token


def _digest(texts: Mapping[str, str]) -> str:
    """Return the digest of names and texts in their order."""
    whole = "\n".join(f"{name}\0{text}" for name, text in texts.items())
    return storage.digest_bytes(whole.encode()).digest


def _packed(error: Exception, reason: Callable[[BaseException], str]) -> dict[str, Any]:
    if isinstance(error, CheckpointError):
        lines = str(error).split("\n")[0]
        return {"problem": lines, "found": error.found[:20], "damaged": isinstance(error, DamagedError)}
    saved = isinstance(error, SaveError) and error.saved
    cause = error.__cause__ if isinstance(error, SaveError) and error.__cause__ is not None else error
    return {"problem": reason(cause), "found": [], "saved": saved, "step": getattr(error, "step", 0)}


def _unpacked(index: int, packed: Mapping[str, Any]) -> Exception:
    text = f"process {index}: {packed['problem']}"
    if packed.get("saved"):
        return SaveError(packed["step"], text, saved=True)
    kind = DamagedError if packed.get("damaged") else CheckpointError
    return kind(text, [(name, why) for name, why in packed["found"]])


def agree(group: SavingGroup, what: str, own: Mapping[str, str]) -> None:
    """Refuse processes that do not do the same; digests cross first, and what differs only where they do.

    Args:
        group: The processes.
        what: What they do, for the message.
        own: Name to text, of everything that has to be the same.

    Raises:
        CheckpointError: They differ; names what, and in which processes.
    """
    texts = group.exchange(_digest(own))
    if len(set(texts)) == 1:
        return
    every = group.exchange(dict(own))
    names = dict.fromkeys(name for one in every for name in one)
    rows = [(name, _difference([one.get(name) for one in every])) for name in names]
    found = [(name, why) for name, why in rows if why]
    if not found:
        found = [("the leaves", "stand in another order")]
    remedy = "; what each has for itself, such as a generator, has to be gathered first" if what == "save" else ""
    raise CheckpointError(f"processes that {what} together do not give the same{remedy}:", found)


def _difference(texts: Sequence[str | None]) -> str:
    """Return which processes have which text; empty where all have the same."""
    if len(set(texts)) == 1:
        return ""
    holders: dict[str | None, list[int]] = {}
    for index, text in enumerate(texts):
        holders.setdefault(text, []).append(index)
    shown = [
        f"{'nothing' if text is None else text} in process {', '.join(map(str, indices[:5]))}"
        + (f" and {len(indices) - 5} more" if len(indices) > 5 else "")
        for text, indices in holders.items()
    ]
    return "; ".join(shown[:5])
