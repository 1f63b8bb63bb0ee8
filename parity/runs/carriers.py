"""Copies of checkpoints that all processes of a run send: process 0 divides and asks, the others send their shares.

Beside the loops of all of them, over the connections by which they follow process 0. What another process cannot
send, process 0 sends: a machine that does not reach the store costs time and no checkpoint.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty

from parity.checkpoints.remote import FilePart, Wrote, divide, send_part
from parity.contract import Place
from parity.runs.channel import Message
from parity.runs.peers import Peers
from parity.storage import BLOCK, reason
from parity.storage.stores import Objects, open_store

__all__ = ["Others", "WrittenBy", "follow_copies"]

WrittenBy = Callable[[int], Wrote]
"""Returns what this process wrote of the checkpoint of a step; nothing where it does not know."""

MOST_PARTS, MOST_BLOCKS = 1000, 8000
"""Of one request: its answer has 32 letters for each block, and messages have a longest."""
MOST_KNOWN = 50_000
"""Blocks of which a process says that it wrote them; of a larger checkpoint none, and shares are equal ones."""

POLL_SECONDS = 0.5
"""Between two looks at the lease while others send."""


class Others:
    """The processes that send, for process 0; as `parity.checkpoints.remote.Carriers`.

    Args:
        peers: The connections to the others.
        place: That of process 0.
        written: What process 0 wrote.
        say: Takes one line for people.
    """

    def __init__(self, peers: Peers, place: Place, written: WrittenBy, say: Callable[[str], None]) -> None:
        self._peers, self._count, self._written, self._say = peers, place.count, written, say
        self._number = 0
        """Of the last request; answers to those that were given up are passed over."""
        self._failures = dict.fromkeys(range(1, place.count), 0)
        """Other process to how often in a row it could not send."""
        self._left_out = dict.fromkeys(range(1, place.count), 0)
        """Other process to the number of checkpoints for which it is not asked."""

    def carry(
        self, folder: Objects, path: Path, sizes: Mapping[str, int], go_on: Callable[[], None]
    ) -> dict[FilePart, Sequence[bytes]]:
        """Send the files of a checkpoint, in parts; see `Carriers`."""
        asked = [index for index, left in self._left_out.items() if not left]
        self._left_out = {index: max(0, left - 1) for index, left in self._left_out.items()}
        wrote = self._ask_what_they_wrote(int(path.name), asked, go_on)
        own, *shares = divide(sizes, wrote)
        wanted: dict[int, tuple[int, list[FilePart]]] = {}
        for index, parts in zip(asked, shares, strict=True):
            for batch in _batches(parts):
                given = [[part.file, part.start, part.size, sizes[part.file]] for part in batch]
                number = self._begin(index, {"send": given, "to": str(folder.url), "of": path.name})
                wanted[number] = (index, batch)
        sent = self.carry_again(folder, path, sizes, own, go_on)
        failed: dict[int, str] = {}
        missing: list[FilePart] = []
        while wanted:
            number, answer = self._next(wanted, go_on)
            index, batch = wanted.pop(number)
            if "sent" in answer:
                sent |= zip(batch, [_blocks(text) for text in answer["sent"]], strict=True)
                continue
            failed[index] = str(answer.get("failed"))
            missing += [*batch, *(part for who, parts in wanted.values() if who == index for part in parts)]
            wanted = {number: one for number, one in wanted.items() if one[0] != index}
        sent |= self.carry_again(folder, path, sizes, missing, go_on)  # what fails here too is the store's fault
        self._note(asked, failed)
        return sent

    def carry_again(
        self,
        folder: Objects,
        path: Path,
        sizes: Mapping[str, int],
        parts: Sequence[FilePart],
        go_on: Callable[[], None],
    ) -> dict[FilePart, Sequence[bytes]]:
        """Send parts in this process alone; see `Carriers`."""
        sent: dict[FilePart, Sequence[bytes]] = {}
        for part in parts:
            go_on()
            sent[part] = send_part(folder, path, part, sizes[part.file])
        return sent

    def _ask_what_they_wrote(self, step: int, asked: Sequence[int], go_on: Callable[[], None]) -> list[Wrote]:
        waiting = {self._begin(index, {"wrote": step}): index for index in asked}
        found: dict[int, Wrote] = {}
        while waiting:
            number, answer = self._next(waiting, go_on)
            told = answer.get("wrote") or {}
            found[waiting.pop(number)] = {
                file: {int(at): size for at, size in one.items()} for file, one in told.items()
            }
        return [self._written(step), *(found[index] for index in asked)]

    def _note(self, asked: Sequence[int], failed: Mapping[int, str]) -> None:
        """Leave a process out for longer and longer while it cannot send what process 0 can, and say so once."""
        for index in asked:
            if index not in failed:
                self._failures[index] = 0
                continue
            self._failures[index] += 1
            self._left_out[index] = 2 ** min(self._failures[index], 8) - 1
            if self._failures[index] == 1:
                who = f"process {index} of {self._count}"
                self._say(f"{who} could not send its share of a copy ({failed[index]}); process 0 sends it")

    def _begin(self, index: int, message: Message) -> int:
        self._number += 1
        self._peers.aside(index, {"number": self._number, **message})
        return self._number

    def _next(self, waiting: Mapping[int, object], go_on: Callable[[], None]) -> tuple[int, Message]:
        """Return the next answer to one of some requests; a process that is gone ends this one."""
        while True:
            go_on()
            try:
                _, answer = self._peers.asides.get(timeout=POLL_SECONDS)
            except Empty:
                continue
            if answer is not None and answer["number"] in waiting:
                return answer["number"], answer


def follow_copies(peers: Peers, checkpoints: Path, written: WrittenBy) -> None:
    """Begin to send, in another process than the first, what process 0 asks for; until they part.

    Args:
        peers: The connection to process 0.
        checkpoints: Directory of the run's checkpoints, which is that of process 0 too.
        written: What this process wrote.
    """

    def work() -> None:
        with suppress(OSError):  # process 0 is gone, and this one ends with it
            while (message := peers.asides.get()[1]) is not None:
                peers.aside(0, {"number": message["number"], **_answer(message, checkpoints, written)})

    threading.Thread(target=work, name="copies", daemon=True).start()


def _answer(message: Message, checkpoints: Path, written: WrittenBy) -> Message:
    """Do what process 0 asks for; what fails is reported, as it is for process 0 to say and to mend."""
    try:
        if "wrote" in message:
            known = written(message["wrote"])
            return {"wrote": known if sum(map(len, known.values())) <= MOST_KNOWN else {}}
        folder, path = open_store(message["to"]), checkpoints / message["of"]
        parts = [(FilePart(*one), whole) for *one, whole in message["send"]]
        return {"sent": [b"".join(send_part(folder, path, part, whole)).hex() for part, whole in parts]}
    except Exception as error:
        return {"failed": reason(error)}


def _batches(parts: Sequence[FilePart]) -> Iterator[list[FilePart]]:
    """Yield parts as the requests that they are sent by."""
    batch: list[FilePart] = []
    blocks = 0
    for part in (one for whole in parts for one in _cut(whole)):
        blocks += -(-part.size // BLOCK)
        if batch and (len(batch) == MOST_PARTS or blocks > MOST_BLOCKS):
            yield batch
            batch, blocks = [], -(-part.size // BLOCK)
        batch.append(part)
    if batch:
        yield batch


def _cut(part: FilePart) -> Iterator[FilePart]:
    """Yield a part as objects of at most so many blocks as a request may have."""
    most = MOST_BLOCKS * BLOCK
    for at in range(0, max(part.size, 1), most):
        yield part._replace(start=part.start + at, size=min(most, part.size - at))


def _blocks(text: str) -> list[bytes]:
    """Return the digests of the blocks of a part from their joined text."""
    data = bytes.fromhex(text)
    return [data[at : at + 16] for at in range(0, len(data), 16)]
