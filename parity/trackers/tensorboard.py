"""Event files for TensorBoard, one for each process of a run, in `<run>/tensorboard/`."""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from crc32c import crc32c
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.hparams.summary_v2 import hparams_pb

from parity.contract import RunIdentity
from parity.storage import named
from parity.trackers.history import History, Point

__all__ = ["TensorBoard"]

PREFIX = "events.out.tfevents."
"""What TensorBoard knows its files by; the number of the attempt follows, since TensorBoard reads files in the order
of their names, and a clock may go back."""


class TensorBoard:
    """Writes event files.

    A process that continues from step k writes a file of its own, which begins with a restart: TensorBoard then drops
    what it read of the steps from there on. The restart is at k + 1, or earlier where a kill kept steps from reaching
    the file before; those are written again from the records. Scalars are float32, which is what the format has.
    """

    def __init__(self) -> None:
        self._path = Path()

    def open(self, history: History, identity: RunIdentity, report: Callable[[str], None]) -> None:
        """Start the file of this process, with the settings and with what earlier files lack."""
        directory = history.run.path / "tensorboard"
        directory.mkdir(exist_ok=True)
        reached = _reached(directory, history)
        self._path = directory / f"{PREFIX}{history.attempt:06d}"
        with named(self._path):
            self._file = self._path.open("xb", buffering=0)
        restart = SessionLog(status=SessionLog.START)
        self._write(
            [
                Event(wall_time=time.time(), file_version="brain.Event:2"),
                Event(wall_time=time.time(), step=reached + 1, session_log=restart),
                Event(wall_time=time.time(), step=reached + 1, summary=_settings(identity)),
            ]
        )
        self.log(history.points(after=reached, until=history.start))

    def log(self, points: Sequence[Point]) -> None:
        """Append one event for each point, all in one write."""
        now = time.time()
        self._write([Event(wall_time=now, step=point.step, summary=_scalars(point)) for point in points])

    def close(self, *, failed: bool = False) -> None:
        """Close the file; every write went to the system when it was made."""
        self._file.close()

    def _write(self, events: list[Event]) -> None:
        data = memoryview(b"".join(_frame(event.SerializeToString()) for event in events))
        with named(self._path):
            while data:
                data = data[self._file.write(data) :]


def _scalars(point: Point) -> Summary:
    return Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in point.scalars.items()])


def _settings(identity: RunIdentity) -> Summary:
    """Return the identity of the run as a text (`config`) and as hyperparameters."""
    text = TensorProto(dtype=DT_STRING, string_val=[f"```toml\n{identity.text}```\n".encode()])
    text.tensor_shape.dim.add(size=1)
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    config = Summary.Value(tag="config", tensor=text, metadata=metadata)
    values = {name: v if isinstance(v, bool | int | float) else str(v) for name, v in identity.fields.items()}
    return Summary(value=[config, *hparams_pb(values).value])


def _reached(directory: Path, history: History) -> int:
    """Return up to which step the event files show the curve without a gap.

    The last step of a file is not counted, since its validation would come after it.
    """
    reached, since = 0, -1
    for path in sorted(directory.glob(PREFIX + "[0-9]*")):
        attempt = int(path.name.removeprefix(PREFIX))
        reached = history.standing(reached, since, attempt)
        since = attempt
        events = [Event.FromString(data) for data in _ends(path)]
        if len(events) == 3 and events[1].step <= reached + 1:  # else a file between is gone, or this one is empty
            reached = events[2].step - 1
    return history.standing(reached, since)


def _ends(path: Path) -> list[bytes]:
    """Return the first two records of an event file (version, restart) and the last one."""
    records = _frames(path.read_bytes())
    return [*islice(records, 2), *deque(records, maxlen=1)]


def _frames(data: bytes) -> Iterator[bytes]:
    """Yield the records of an event file, up to the first that is torn or damaged."""
    at = 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        payload = data[at + 12 : at + 12 + length]
        if data[at : at + 16 + length] != _frame(payload) or len(payload) != length:
            return
        yield payload
        at += 16 + length


def _frame(payload: bytes) -> bytes:
    """Return a record as the format has it: length, its checksum, payload, its checksum.

    Source: TFRecord, https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
    """
    length = struct.pack("<Q", len(payload))
    return length + _checksum(length) + payload + _checksum(payload)


def _checksum(data: bytes) -> bytes:
    value = crc32c(data)  # in C: the one in Python that TensorBoard brings takes 47 microseconds for a step, this 0.1
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)
