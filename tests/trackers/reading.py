"""What the files of the trackers hold: event files by TensorBoard's own reader, W&B's by its messages."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.trackers.rehearsal import Shown

EVERYTHING = {"scalars": 0, "tensors": 0}
"""No sampling."""


def accumulated(run: Path) -> EventAccumulator:
    """Return TensorBoard's view of a run."""
    return EventAccumulator(str(run / "tensorboard"), size_guidance=EVERYTHING).Reload()


def events_of(run: Path) -> Shown:
    """Return the scalars that TensorBoard shows."""
    view = accumulated(run)
    return {tag: [(e.step, e.value) for e in view.Scalars(tag)] for tag in view.Tags()["scalars"]}


def newest_offline(run: Path) -> Path:
    """Return the data of the process that logged last."""
    (file,) = (run / "wandb" / "latest-run").glob("*.wandb")
    return file


def messages_of(file: Path) -> Iterator[Any]:
    """Yield the messages of an offline run, in W&B's order.

    The file is a LevelDB log with a header of seven bytes: blocks of 32 KiB, in them fragments with a checksum, a
    length and a kind (1 whole, 2 first, 3 middle, 4 last).
    """
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, message = file.read_bytes(), 7, b""
    assert data.startswith(b":W&B"), file
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        message += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield Record.FromString(message)
            message = b""


def history_of(file: Path) -> Shown:
    """Return the scalars of an offline run."""
    shown: Shown = {}
    for message in messages_of(file):
        if message.WhichOneof("record_type") == "history":
            row = {"".join(i.nested_key) or i.key: json.loads(i.value_json) for i in message.history.item}
            for tag, value in row.items():
                if not tag.startswith("_"):
                    shown.setdefault(tag, []).append((row["_step"], float(value)))
    return shown


def config_of(file: Path) -> dict[str, Any]:
    """Return the settings of an offline run."""
    runs = [m.run for m in messages_of(file) if m.WhichOneof("record_type") == "run"]
    return {item.key: json.loads(item.value_json) for item in runs[0].config.update}
