"""RunSpec as TOML: read it, write it, override fields by dotted name, list differences, compute its hash."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any, get_type_hints

import tomli_w

from parity.contract import RunIdentity, flatten_tables, parse_toml
from parity.errors import RunDirectoryError, SpecError, UnknownNameError, similar
from parity.spec.epochs import BatchesPerEpoch, in_steps, take_epochs
from parity.spec.mesh import MeshSpec
from parity.spec.optimizer import LATER, OPTIMIZER_SPECS
from parity.spec.presets import PRESETS, preset
from parity.spec.run import Precision, RunSpec
from parity.spec.tables import cut, from_dict, pick, to_dict
from parity.storage import local_path, read_given

__all__ = [
    "FREE",
    "differences",
    "flatten",
    "from_toml",
    "identity_of",
    "load",
    "override",
    "spec_hash",
    "to_toml",
]

FREE = ("name", "steps", "save", "validate_every", "execution", "mesh")
"""Fields that may differ at each start of a run, because they do not change what a step computes."""

MAX_BYTES = 1 << 20
"""Largest size of a spec; the presets take 1,500 bytes."""


def to_toml(spec: RunSpec) -> str:
    """Return a spec as TOML, every field included; `from_toml` returns an equal spec.

    Example:
        >>> from parity.spec import preset
        >>> to_toml(preset("mlp-digits")).splitlines()[0]
        'name = "mlp-digits"'
    """
    return tomli_w.dumps(to_dict(spec))


def from_toml(text: str) -> RunSpec:
    """Return the spec that a TOML text describes; fields that it lacks get their defaults.

    Args:
        text: At most 1 MiB; `name` and `model` are required.

    Raises:
        SpecError: The text is not TOML, or a value has the wrong type or is out of range.
        UnknownNameError: A field does not exist; the message lists those that do.

    Example:
        >>> from parity.spec import preset
        >>> from_toml(to_toml(preset("mlp-digits"))) == preset("mlp-digits")
        True
    """
    return from_dict(_parse(text))


def _parse(text: str) -> dict[str, Any]:
    try:
        return parse_toml(text)
    except RecursionError as error:
        raise SpecError("spec", "not valid TOML: nested too deeply") from error
    except (ValueError, TypeError) as error:  # TOMLDecodeError is a ValueError
        raise SpecError("spec", f"not valid TOML: {cut(str(error))}") from error


def load(
    name: str,
    precision: Precision | None = None,
    overrides: Iterable[str] = (),
    per_epoch: BatchesPerEpoch | None = None,
) -> RunSpec:
    """Return the spec of a preset name or a TOML file, in a precision, with overrides applied.

    Args:
        name: Name of a preset, or the path of a TOML file, which ends with `.toml` or contains a separator.
        precision: Replaces the precision of the spec; None leaves it.
        overrides: Texts of the form `field.name=value`, the value in TOML syntax or a bare word.
        per_epoch: Counts the batches of an epoch (`parity.twins.batches_per_epoch`); `steps`, `save.every` and
            `validate_every` may then be given in epochs, `"2 epochs"`. None refuses epochs.

    Raises:
        SpecError: The file cannot be read, or a value has the wrong type or is out of range.
        UnknownNameError: No preset, or no field, has this name.

    Example:
        >>> spec = load("mlp-digits", "float64", ["optimizer.lr=0.5"])
        >>> spec.precision, spec.optimizer.lr
        ('float64', 0.5)
    """
    asked: dict[str, str] = {}
    if name in PRESETS:
        spec = preset(name, precision or "float32")
    elif name.endswith(".toml") or os.sep in name:
        tables = _parse(_read(name))
        if per_epoch is not None:
            tables, asked = take_epochs(tables)
        spec = from_dict(tables)
        if precision:  # together with the overrides: they may change what this precision does not allow
            overrides = [f'precision="{precision}"', *overrides]
    else:
        raise UnknownNameError("preset", name, PRESETS)
    tables = _overridden(spec, [*(f'{field}="{epochs}"' for field, epochs in asked.items()), *overrides])
    if per_epoch is None:
        return from_dict(tables)
    rest, asked = take_epochs(tables)
    return in_steps(from_dict(rest), asked, per_epoch)


def override(spec: RunSpec, overrides: Iterable[str]) -> RunSpec:
    """Return a spec with fields replaced by dotted name.

    A changed `kind` starts from the defaults of the new kind and keeps the values of fields that both kinds have.

    Args:
        spec: The spec; it is not changed.
        overrides: Texts of the form `field.name=value`, applied in order, the value in TOML syntax or a bare word.

    Raises:
        SpecError: A value has the wrong type or is out of range, or a text has no `=`.
        UnknownNameError: A field does not exist; the message lists those that do.

    Example:
        >>> from parity.spec import preset
        >>> override(preset("mlp-digits"), ["optimizer.kind=sgd", "optimizer.lr=0.5"]).optimizer.lr
        0.5
    """
    return from_dict(_overridden(spec, overrides))


def _overridden(spec: RunSpec, overrides: Iterable[str]) -> dict[str, Any]:
    """Return the nested tables of a spec with fields replaced by dotted name; nothing but names is checked."""
    data = to_dict(spec, whole=True)
    for text in overrides:
        path, found, value = text.partition("=")
        if not found:
            raise SpecError(cut(text), "an override reads field.name=value")
        *parents, leaf = path.strip().split(".")
        table: Any = data
        for name in parents:
            known = table if isinstance(table, dict) else {}
            if not isinstance(known.get(name), dict):
                raise _unknown_field(path, data)
            table = table[name]
        if leaf == "kind" and "kind" in table and table["kind"] != _value(value):
            _switch_kind(table, parents, _value(value))
        elif leaf not in table:
            raise _unknown_field(path, data)
        else:
            table[leaf] = _value(value)
    return data


def _unknown_field(path: str, data: dict[str, Any]) -> UnknownNameError:
    """Return the error of an unknown field; of the fields that few specs set, the list has the similar ones."""
    name, known = cut(path.strip()), flatten_tables(data)
    classes: list[tuple[str, Any]] = [*(("optimizer", cls) for cls in OPTIMIZER_SPECS.values()), ("mesh", MeshSpec)]
    later = {f"{table}.{f.name}" for table, cls in classes for f in fields(cls) if f.metadata == LATER}
    hidden = later - {*similar(name, sorted(later))}
    return UnknownNameError("field", name, [one for one in known if one not in hidden])


def flatten(spec: RunSpec) -> dict[str, object]:
    """Return the fields of a spec as one mapping of dotted name to value.

    Example:
        >>> from parity.spec import preset
        >>> flatten(preset("mlp-digits"))["optimizer.lr"]
        0.001
    """
    return flatten_tables(to_dict(spec))


def identity_of(spec: RunSpec) -> RunIdentity:
    """Return what the harness knows a run by.

    How often it validates may differ between starts, unless its schedule moves by what is measured.
    """
    free = tuple(name for name in FREE if name != "validate_every" or not spec.plan.metric_moves)
    return RunIdentity(
        text=to_toml(spec), fields=flatten(spec), free=free, parse=lambda text: flatten(from_toml(text))
    )


def differences(a: RunSpec, b: RunSpec, *, free: Iterable[str] = FREE) -> dict[str, tuple[object, object]]:
    """Return the fields in which two specs differ.

    Args:
        a: A spec.
        b: Another spec.
        free: Top-level fields that are ignored.

    Returns:
        Dotted field name to the pair of values (in `a`, in `b`), None where one of them has no such field.

    Example:
        >>> from parity.spec import preset
        >>> differences(preset("mlp-digits"), preset("mlp-digits", "float64"))
        {'precision': ('float32', 'float64')}
    """
    return replace(identity_of(b), free=tuple(free)).differences(to_toml(a))


def spec_hash(spec: RunSpec, data_digest: str) -> str:
    """Return the hash that identifies a run, over its data and every field of its spec that must not change.

    Fields in `FREE` are left out, because they may differ at each start of a run. The side is not part of a spec.

    Args:
        spec: The spec.
        data_digest: Digest of the training data, as `describe_data` gives it.

    Returns:
        32 hex digits of XXH3-128.
    """
    return identity_of(spec).hash(data_digest)


def _read(name: str) -> str:
    """Return the text of the file of a spec."""
    try:
        return read_given(local_path(name), MAX_BYTES).decode("utf-8-sig")
    except RunDirectoryError as error:
        raise SpecError("spec", str(error)) from error
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise SpecError("spec", f"cannot read {name}: {reason}") from error


def _value(text: str) -> object:
    try:
        return parse_toml(f"v = {text.strip()}")["v"]
    except (ValueError, TypeError, RecursionError):
        return text.strip()  # a bare word, as in optimizer.kind=sgd


def _switch_kind(table: dict[str, Any], parents: list[str], kind: object) -> None:
    cls = pick(get_type_hints(RunSpec)[parents[-1]], {"kind": kind}, ".".join(parents))
    new = to_dict(cls(kind=kind), whole=True)
    kept = {f.name: table[f.name] for f in fields(cls) if f.name in table and f.name != "kind"}
    alike = {name: value for name, value in kept.items() if _is_list(value) == _is_list(new[name])}  # Adafactor's eps
    table.clear()
    table.update(new | alike)  # what was kept is checked with the rest, once all is set


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)
