"""RunSpec as TOML: read, write, override by dotted name, and tell two apart."""

from __future__ import annotations

import os
import reprlib
import types
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import tomli_w

from parity.contract import RunIdentity, flatten_tables, parse_toml
from parity.errors import RunDirectoryError, SpecError, UnknownNameError
from parity.spec.model import require, shown
from parity.spec.presets import PRESETS, preset
from parity.spec.run import Precision, RunSpec
from parity.storage import local_path, read_given

__all__ = [
    "FREE",
    "differences",
    "flatten",
    "from_dict",
    "from_toml",
    "identity_of",
    "load",
    "meaning_hash",
    "override",
    "to_toml",
]

FREE = ("name", "steps", "save", "validate_every", "execution", "mesh")
"""Fields that may change between the stops of one run: they do not change what a step computes."""

MAX_BYTES = 1 << 20
"""Longest spec; those of the presets take 1,500 bytes."""

MOST_SHOWN = 100
"""Characters that a message shows of a value."""


def to_toml(spec: RunSpec) -> str:
    """Write a spec as TOML; `from_toml` gives the same spec back."""
    return tomli_w.dumps(_plain(asdict(spec)))


def from_toml(text: str) -> RunSpec:
    """Read a spec from TOML text.

    Raises:
        SpecError: Not TOML, or a value of the wrong type or out of range.
        UnknownNameError: A field that does not exist; the message lists those that do.
    """
    try:
        data = parse_toml(text)
    except RecursionError as error:
        raise SpecError("spec", "not valid TOML: nested too deeply") from error
    except (ValueError, TypeError) as error:  # TOMLDecodeError is a ValueError
        raise SpecError("spec", f"not valid TOML: {_cut(str(error))}") from error
    return from_dict(data)


def load(name: str, precision: Precision | None = None, overrides: Iterable[str] = ()) -> RunSpec:
    """Return the spec of a preset name or a TOML file, in a precision, with overrides applied.

    Args:
        name: A preset, or the path of a TOML file (recognised by a suffix or a separator in it).
        precision: Replaces the spec's own when given.
        overrides: Texts of the form `field.name=value`, the value in TOML syntax or a bare word.
    """
    if name in PRESETS:
        spec = preset(name, precision or "float32")
    elif name.endswith(".toml") or os.sep in name:
        spec = from_toml(_read(name))
        if precision:  # in one go with the overrides: what a precision does not allow may be overridden too
            overrides = [f'precision="{precision}"', *overrides]
    else:
        raise UnknownNameError("preset", name, PRESETS)
    return override(spec, overrides)


def override(spec: RunSpec, overrides: Iterable[str]) -> RunSpec:
    """Return the spec with dotted fields replaced.

    A changed `kind` starts from the defaults of the new kind and keeps the fields both kinds have.

    Example:
        >>> from parity.spec import preset
        >>> override(preset("mlp-digits"), ["optimizer.kind=sgd", "optimizer.lr=0.5"]).optimizer.lr
        0.5
    """
    data = asdict(spec)
    for text in overrides:
        path, found, value = text.partition("=")
        if not found:
            raise SpecError(_cut(text), "an override reads field.name=value")
        *parents, leaf = path.strip().split(".")
        table: Any = data
        for depth, name in enumerate(parents):
            known = table if isinstance(table, dict) else {}
            if not isinstance(known.get(name), dict):
                raise UnknownNameError("field", _cut(".".join(parents[: depth + 1])), _names(data))
            table = table[name]
        if leaf == "kind" and "kind" in table and table["kind"] != _value(value):
            _switch_kind(table, parents, _value(value))
        elif leaf not in table:
            raise UnknownNameError("field", _cut(path.strip()), _names(data))
        else:
            table[leaf] = _value(value)
    return from_dict(data)


def flatten(spec: RunSpec) -> dict[str, object]:
    """Return dotted field name to value, for every leaf field."""
    return flatten_tables(asdict(spec))


def identity_of(spec: RunSpec) -> RunIdentity:
    """Return what the harness knows a run by."""
    return RunIdentity(
        text=to_toml(spec), fields=flatten(spec), free=FREE, parse=lambda text: flatten(from_toml(text))
    )


def differences(a: RunSpec, b: RunSpec, *, free: Iterable[str] = FREE) -> dict[str, tuple[object, object]]:
    """Return the fields in which two specs differ, those under a `free` name left out."""
    left, right = flatten(a), flatten(b)
    free = tuple(free)
    return {
        name: (left.get(name), right.get(name))
        for name in sorted({*left, *right})
        if left.get(name) != right.get(name) and name.split(".")[0] not in free
    }


def meaning_hash(spec: RunSpec, data_digest: str) -> str:
    """Return 32 hex digits over everything that gives a run its meaning, and over its data.

    Side, mesh, chunk, intervals and the stopping step are left out: they may change within one run.
    """
    return identity_of(spec).hash(data_digest)


def from_dict(data: Mapping[str, Any]) -> RunSpec:
    """Build a spec from nested plain tables, checking every name and type."""
    return _build(RunSpec, data, "")


def _read(name: str) -> str:
    """Return the text of a spec's file."""
    try:
        return read_given(local_path(name), MAX_BYTES).decode("utf-8")
    except RunDirectoryError as error:
        raise SpecError("spec", str(error)) from error
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise SpecError("spec", f"cannot read {name}: {reason}") from error


def _cut(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _shown(value: object) -> str:
    """Return a value for a message, of bounded length: it may be nested deeply, or an integer too long to print."""
    return _Short().repr(value)


def _word(value: object) -> str:
    """Return a value that should have been one of a few words."""
    return _cut(value) if isinstance(value, str) else _shown(value)


class _Short(reprlib.Repr):
    """`repr`, cut in breadth and depth."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = MOST_SHOWN
        self.maxlevel, self.maxdict = 2, 3

    def repr_int(self, x: int, level: int) -> str:
        """Return an integer in digits if it is short."""
        del level
        return shown(x)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _value(text: str) -> object:
    try:
        return parse_toml(f"v = {text.strip()}")["v"]
    except (ValueError, TypeError, RecursionError):
        return text.strip()  # a bare word: optimizer.kind=sgd


def _names(data: Mapping[str, Any], prefix: str = "") -> list[str]:
    out = []
    for name, value in data.items():
        out += _names(value, f"{prefix}{name}.") if isinstance(value, dict) else [f"{prefix}{name}"]
    return out


def _switch_kind(table: dict[str, Any], parents: list[str], kind: object) -> None:
    cls = _pick(get_type_hints(RunSpec)[parents[-1]], {"kind": kind}, ".".join(parents))
    kept = {f.name: table[f.name] for f in fields(cls) if f.name in table and f.name != "kind"}
    table.clear()
    table.update(asdict(cls(kind=kind, **kept)))


def _pick(hint: Any, data: Mapping[str, Any], where: str) -> Any:
    """Choose among the dataclasses of a union by their `kind`."""
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    by_kind = {kind: cls for cls in options for kind in get_args(get_type_hints(cls).get("kind"))}
    if not by_kind:
        return hint
    if not isinstance(data.get("kind"), str) or data["kind"] not in by_kind:
        raise UnknownNameError(f"{where}.kind", _word(data.get("kind")), by_kind)
    return by_kind[data["kind"]]


def _build(cls: Any, data: Any, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise SpecError(where, f"must be a table, got {_shown(data)}")
    hints = get_type_hints(cls)
    prefix = f"{where}." if where else ""
    for name in data:
        if name not in hints:
            raise UnknownNameError("field", prefix + _cut(name), [prefix + n for n in hints])
    given = {name: _convert(hints[name], value, prefix + name) for name, value in data.items()}
    missing = [n for n in ("name", "model") if cls is RunSpec and n not in given]
    if missing:
        raise SpecError(missing[0], "is required")
    return cls(**given)


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin = get_origin(hint)
    if is_dataclass(hint) or origin in (Union, types.UnionType):
        if not isinstance(value, Mapping):
            raise SpecError(where, f"must be a table, got {_shown(value)}")
        return _build(_pick(hint, value, where), value, where)
    if origin is Literal:
        if value not in get_args(hint):
            raise UnknownNameError(where, _word(value), [str(v) for v in get_args(hint)])
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise SpecError(where, f"must be a list, got {_shown(value)}")
        return tuple(_convert(get_args(hint)[0], item, where) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        require(
            abs(value) < 2**128, where, f"must be at most 2**128, got {shown(value)}"
        )  # no float holds any integer
        return float(value)
    if type(value) is not hint:
        raise SpecError(where, f"must be of type {hint.__name__}, got {_shown(value)}")
    return value
