"""The description of a tree that Orbax keeps beside its arrays: one row for each leaf and each empty container.

Source: `_METADATA`, as `PyTreeCheckpointHandler` of Orbax 0.12.8 writes and reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = [
    "ARRAY",
    "CHECKPOINT",
    "DESCRIPTION",
    "JSON_HANDLER",
    "TREE_HANDLER",
    "describe",
    "describe_handlers",
    "kind_of_empty",
    "row",
]

DESCRIPTION = "_METADATA"
"""The file of an item that describes its tree, and carries the custom metadata of a save."""

CHECKPOINT = "_CHECKPOINT_METADATA"
"""The file of a checkpoint that says by which handler Orbax reads it, or each of its items."""

_HANDLERS = "orbax.checkpoint._src.handlers"
TREE_HANDLER = f"{_HANDLERS}.pytree_checkpoint_handler.PyTreeCheckpointHandler"
JSON_HANDLER = f"{_HANDLERS}.json_checkpoint_handler.JsonCheckpointHandler"

ARRAY = "np.ndarray"
"""The kind of a leaf that a restore without a template makes an array of NumPy's."""

_SEQUENCE, _DICT = 1, 2
_EMPTY = ("Dict", "List", "Tuple", "None")


def describe_handlers(handlers: str | Mapping[str, str]) -> dict[str, Any]:
    """Return what the file of a checkpoint holds that says how Orbax reads it.

    Args:
        handlers: `TREE_HANDLER`, or item to that or `JSON_HANDLER`.
    """
    return {
        "item_handlers": handlers,
        "metrics": {},
        "performance_metrics": {},
        "init_timestamp_nsecs": None,
        "commit_timestamp_nsecs": None,
        "custom_metadata": {},
    }


def row(keys: Iterable[tuple[Any, bool]], kind: str) -> tuple[str, dict[str, Any]]:
    """Return the row of a leaf, or of an empty container: its name and its value.

    Args:
        keys: The keys that lead to it, each with whether it is a position in a sequence.
        kind: `ARRAY`, `string`, `scalar`, or what `kind_of_empty` returns.

    Example:
        >>> row([("layers", False), (0, True)], ARRAY)[0]
        "('layers', '0')"
    """
    named = [(str(key), _SEQUENCE if sequence else _DICT) for key, sequence in keys]
    return str(tuple(key for key, _ in named)), {
        "key_metadata": [{"key": key, "key_type": kind} for key, kind in named],
        "value_metadata": {"value_type": kind, "skip_deserialize": kind in _EMPTY},
    }


def kind_of_empty(value: Any) -> str:
    """Return the kind of a container without anything in it; a named tuple counts as None.

    Example:
        >>> kind_of_empty({}), kind_of_empty([]), kind_of_empty(())
        ('Dict', 'List', 'Tuple')
    """
    if isinstance(value, Mapping):
        return "Dict"
    if isinstance(value, list):
        return "List"
    return "Tuple" if isinstance(value, tuple) and not hasattr(value, "_fields") else "None"


def describe(rows: Iterable[tuple[str, dict[str, Any]]], *, use_ocdbt: bool, label: Any = None) -> dict[str, Any]:
    """Return the description of a tree, as JSON.

    Args:
        rows: What `row` returned, in the order of the leaves.
        use_ocdbt: Whether the arrays lie in an OCDBT store, or each in a directory of its own.
        label: JSON that the description carries, Orbax's custom metadata.
    """
    return {
        "tree_metadata": dict(rows),
        "use_ocdbt": use_ocdbt,
        "use_zarr3": False,
        "store_array_data_equal_to_fill_value": True,
        "custom_metadata": label,
    }
