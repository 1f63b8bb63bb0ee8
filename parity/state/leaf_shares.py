"""Digests of arrays that lie in several processes: each digests what it holds, and they complete the rest in shares.

No process ever has such an array: what crosses are digests of its blocks, and the bytes of those blocks that a shard
ends in. The digest is that of one process (`LeafDigest`), so a seal does not say how many saved it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from parity.errors import StateError
from parity.state.leaf_blocks import LeafDigest

__all__ = ["Exchange", "Scatter", "SharedLeaf", "complete_in_shares", "digest_together"]

ROUND = 8 << 20
"""Bytes of the ends of shards that are exchanged at once: no process ever has more of what others hold, or little."""

Exchange = Callable[[Any], list[Any]]
"""Returns the values of all processes, in their order; each gives one, which must be JSON."""


Scatter = Callable[[list[Any]], list[Any]]
"""Gives one value to each process, in their order, and returns what each of them gave this one; all are JSON."""

HeldDigests = Mapping[str, Mapping[str, LeafDigest]]
"""Leaf to the name of a copy to what is known of its digest."""


class SharedLeaf(NamedTuple):
    """One array of which every process holds a part, or nothing."""

    leaf: str
    size: int
    """Bytes of the whole array: the same in every process, so that all exchange the same leaves at once."""
    digests: Callable[[], Mapping[str, LeafDigest]]
    """Returns name of a copy to the digest of what this process holds of that copy."""


def digest_together(leaves: Iterable[SharedLeaf], exchange: Exchange, index: int, count: int) -> dict[str, str]:
    """Return leaf to `type digest`; all processes call it, with the same leaves in the same order.

    Every copy of an array is digested where it is, so that it is known of each process that it holds what was saved.

    Args:
        leaves: The arrays.
        exchange: Gathers what all processes give.
        index: Number of this process.
        count: Number of processes.

    Raises:
        StateError: HeldDigests of a leaf differ, or elements of one are in no process, or in two.
    """
    every, found, own = list(leaves), dict[str, str](), list[Mapping[str, LeafDigest]]()
    problems: dict[str, str] = {}
    while every:
        weight = sum(_weight(one, copies, count) for one, copies in zip(every, own, strict=False))
        while len(own) < len(every) and weight < ROUND:
            one = every[len(own)]
            own.append(_attempted(one, problems))
            weight += _weight(one, own[-1], count)
        reached = exchange([len(own), sum(digest.waiting for copies in own for digest in copies.values())])
        taken = min(length for length, _ in reached)  # of whole leaves, the same ones in all processes
        rounds = -(-sum(waiting for _, waiting in reached) // (count * ROUND))
        found |= _exchanged(every[:taken], own[:taken], problems, exchange, index, count, rounds)
        every, own = every[taken:], own[taken:]
    return found


def _weight(one: SharedLeaf, copies: Mapping[str, LeafDigest], count: int) -> int:
    """Return the bytes of what crosses for a leaf: the ends of shards, digests of its blocks, and its description.

    A block has at least 2**18 bytes, and its digest about 50 in JSON.
    """
    return sum(digest.waiting for digest in copies.values()) + (one.size >> 12) + 128 * count


def _exchanged(
    leaves: list[SharedLeaf],
    own: list[Mapping[str, LeafDigest]],
    problems: dict[str, str],
    exchange: Exchange,
    index: int,
    count: int,
    rounds: int,
) -> dict[str, str]:
    """Return the digests of leaves: each process completes a share of the blocks that lie in several.

    What is wrong in one process is told to all, so that all raise, and none waits for one that has. Each process
    completes some blocks in each round; where no block lies in several, there are no rounds.
    """
    owners = count * rounds
    shares: list[dict[str, LeafDigest]] = [{} for _ in leaves]
    for owner in range(owners):
        every = exchange([_of_owner(copies, owner, owners) for copies in own])
        if owner % count == index:
            _merge(leaves, shares, every, problems)
    complete = [{copy: digest.packed(only="digests") for copy, digest in copies.items()} for copies in own]
    completed = [{copy: digest.packed() for copy, digest in share.items()} for share in shares]
    told = exchange([complete, completed, problems])
    problems = dict(problems)
    for _, _, theirs in told:
        problems |= theirs
    whole: list[dict[str, LeafDigest]] = [{} for _ in leaves]
    if not problems:
        _merge(leaves, whole, [digests for *both, _ in told for digests in both], problems)
    if problems:
        leaf = min(problems)
        raise StateError(leaf, problems[leaf])
    return {one.leaf: _text(one.leaf, copies) for one, copies in zip(leaves, whole, strict=True)}


def _of_owner(copies: Mapping[str, LeafDigest], owner: int, owners: int) -> dict[str, Any]:
    """Return what one owner is sent of a leaf: parts of the blocks that fall to it, of the copies that have some."""
    packed = {copy: digest.packed(owner, owners, only="parts") for copy, digest in copies.items()}
    return {copy: one for copy, one in packed.items() if one["parts"]}


def complete_in_shares(
    leaves: Iterable[tuple[str, int]], held: HeldDigests, scatter: Scatter, count: int
) -> dict[str, dict[str, LeafDigest]]:
    """Return this process's share of all blocks, complete; all processes call it with the same leaves.

    Each block has one process that completes it, and gets what others have of it: no process gets more than its share
    of the state, and one that merges what all return gets digests alone. The blocks of a leaf begin with another
    process than those of the leaf before, as most leaves have fewer blocks than there are processes.

    Args:
        leaves: Names of all leaves and their bytes, in the same order in every process.
        held: What this process has of them.
        scatter: Passes values between the processes; it is called once for each `ROUND` bytes of a process.
        count: Number of processes.

    Raises:
        ValueError: Elements of a leaf are in two processes; the others return as if it were well.
    """
    found: dict[str, dict[str, LeafDigest]] = {}
    problem: ValueError | None = None
    waiting: list[tuple[int, str]] = []
    size = 0
    every = list(leaves)
    for at, (leaf, held_bytes) in enumerate(every):
        waiting.append((at, leaf))
        size += held_bytes
        if size < ROUND * count and at + 1 < len(every):
            continue
        given = scatter(_for_owners(waiting, held, count))
        waiting, size = [], 0
        try:
            for shares in given:
                for name, copies in shares.items():
                    _merge_copies(found.setdefault(name, {}), copies)
        except ValueError as error:  # the other processes are on their way to the next round
            problem = problem or ValueError(f"{error}")
    if problem is not None:
        raise problem
    return found


def _for_owners(leaves: Iterable[tuple[int, str]], held: HeldDigests, count: int) -> list[Any]:
    """Return for each process what falls to it of some leaves, each with its number."""
    out: list[dict[str, dict[str, Any]]] = [{} for _ in range(count)]
    for number, leaf in leaves:
        for copy, digest in held.get(leaf, {}).items():
            for owner in digest.owners(count):
                out[(owner + number) % count].setdefault(leaf, {})[copy] = digest.packed(owner, count)
    return out


def _merge_copies(into: dict[str, LeafDigest], given: Mapping[str, Any]) -> None:
    for copy, digest in given.items():
        part = LeafDigest.unpacked(digest)
        into[copy].merge(part) if copy in into else into.setdefault(copy, part)


def _attempted(one: SharedLeaf, problems: dict[str, str]) -> Mapping[str, LeafDigest]:
    try:
        return one.digests()
    except ValueError as error:
        problems[one.leaf] = str(error)
        return {}


def _merge(
    leaves: list[SharedLeaf], into: list[dict[str, LeafDigest]], every: list[Any], problems: dict[str, str]
) -> None:
    """Merge what processes have of each copy of each leaf."""
    for packed in every:
        for one, copies, given in zip(leaves, into, packed, strict=True):
            try:
                _merge_copies(copies, given)
            except ValueError as error:
                problems[one.leaf] = str(error)


def _text(leaf: str, copies: Mapping[str, LeafDigest]) -> str:
    """Return the text of all copies, which every process has by now."""
    if not copies:
        raise StateError(leaf, "no process holds any of it")
    try:
        texts = {digest.text() for digest in copies.values()}
    except ValueError as error:
        raise StateError(leaf, str(error)) from error
    if len(texts) > 1:
        raise StateError(leaf, f"devices that hold the same part of it differ: {' and '.join(sorted(texts))}")
    return texts.pop()
