"""Kinds of code: what functions, methods and classes hold beside their instructions; suspended generators, tasks."""

from __future__ import annotations

import ctypes
import enum
import functools
import gc
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from parity.capture.arrays import PLAIN
from parity.capture.modules import class_path, is_of_user
from parity.capture.probes import without_addresses
from parity.capture.registry import CONTAINERS, LIBRARY_ROOTS, class_visits, is_a, register, root_package
from parity.capture.walk import Walk

__all__ = ["show_class_of"]


def _function(walk: Walk, path: str, function: types.FunctionType) -> None:
    """Look into what a function closes over; of a user's also its defaults and attributes."""
    holds = function.__closure__ or function.__defaults__ or function.__kwdefaults__ or vars(function)
    if not holds or root_package(function) in LIBRARY_ROOTS or not walk.is_new(path, function, "code"):
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name == "__class__":
            continue
        try:
            content = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        walk.visit(f"{path}.{name}", content)
    if not is_of_user(function.__module__):
        return
    code, defaults = function.__code__, function.__defaults__ or ()
    named = zip(code.co_varnames[: code.co_argcount][-len(defaults) :], defaults, strict=False) if defaults else ()
    for name, value in (*named, *(function.__kwdefaults__ or {}).items()):
        if not is_a(value, *PLAIN):  # a number there is a constant of the program
            walk.place(f"{path}.{name}", value)
    for name, value in list(vars(function).items()):
        walk.place(f"{path}.{name}", value)


def _method(walk: Walk, path: str, method: types.MethodType) -> None:
    walk.visit(f"{path}.__self__", method.__self__)
    if isinstance(method.__func__, types.FunctionType) and not is_of_user(root_package(type(method.__self__))):
        walk.visit(f"{path}.__func__", method.__func__)


def _cached(walk: Walk, path: str, function: Any) -> None:
    """Look into what `functools.lru_cache` keeps: it has no way to be asked, the garbage collector sees it."""
    if root_package(function) in LIBRARY_ROOTS or not walk.is_new(path, function, "code"):
        return
    inner, own = getattr(function, "__wrapped__", None), vars(function)
    if is_of_user(root_module(function)):
        for at, (key, result) in enumerate(_kept(function, own)):
            if is_a(result, *PLAIN, types.FunctionType) or _is_constant(result):
                continue  # found again from its arguments, as long as nobody can change it
            plain = is_a(key, *PLAIN, tuple, list)  # the arguments, by which two runs have the same entry
            walk.place(f"{path}.cache[{without_addresses(repr(key)) if plain else at}]", result)
        for name, value in list(own.items()):
            if name not in _OF_WRAPS:
                walk.place(f"{path}.{name}", value)
    if inner is not None:
        walk.visit(f"{path}.__wrapped__", inner)


def _is_constant(result: Any) -> bool:
    """Return whether a result is a tuple that a library defines, such as a transformation of Optax."""
    return is_a(result, tuple) and type(result) is not tuple and not is_of_user(root_module(type(result)))


def _kept(function: Any, own: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """Return arguments and results that a cache holds: in its dict, or as links of a list where it is bounded."""
    found: list[tuple[Any, Any]] = []
    link: list[Any] = []
    for part in gc.get_referents(function):
        if isinstance(part, type) and part.__name__ == _ENTRY:
            found += [(link[-2], link[-1])] if len(link) > 1 else []
            link = []
        elif isinstance(part, dict) and part is not own and not found:
            return [(key, result) for key, result in list(part.items()) if type(result).__name__ != _ENTRY]
        else:
            link.append(part)
    return found


_ENTRY = "_lru_list_elem"
_OF_WRAPS = ("__wrapped__", "__doc__", "__module__", "__name__", "__qualname__", "__annotations__", "__type_params__",
             "cache_parameters")  # fmt: skip
"""What `functools` itself puts on a function that it wraps."""


def root_module(thing: Any) -> str | None:
    """Return the module that a function says it is of."""
    name = getattr(thing, "__module__", None)
    return name if isinstance(name, str) else None


def show_class_of(walk: Walk, cls: type) -> None:
    """Add the user's classes among the bases of a class, and the class of each, after all that variables lead to."""
    for base in [*cls.__mro__, *type.mro(type(cls))]:
        if id(base) not in (known := walk.noted.setdefault("classes", {})) and is_of_user(root_module(base)):
            known[id(base)] = base
            walk.place(class_path(base), _ClassContent(base))


class _ClassContent:
    """Stands for the attributes of a class, once."""

    __slots__ = ("cls",)

    def __init__(self, cls: type) -> None:
        self.cls = cls


def _class(walk: Walk, path: str, cls: type) -> None:
    show_class_of(walk, cls)


def _content(walk: Walk, path: str, content: _ClassContent) -> None:
    for name, value in list(vars(content.cls).items()):
        if is_a(value, *_NO_CONTENT) or (_is_special(name) and not is_a(value, types.FunctionType)):
            continue
        if name == "_abc_impl" or (
            isinstance(content.cls, enum.EnumType) and name.startswith("_") and name[-1] == "_"
        ):
            continue
        walk.visit(f"{path}.{name}", value)


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


class _Named(NamedTuple):
    field: int


class _OneField(ctypes.Structure):
    _fields_ = (("field", ctypes.c_int),)


_NO_CONTENT = (
    types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType, types.MethodDescriptorType,
    types.ClassMethodDescriptorType, type(_Named.field), type(_OneField.field), types.BuiltinFunctionType,
)  # fmt: skip


def _parts(*names: str) -> Callable[[Walk, str, Any], None]:
    """Return what shows some attributes of a descriptor: the functions in it."""

    def visit(walk: Walk, path: str, value: Any) -> None:
        for name in names:
            inner = getattr(value, name, None)
            if inner is not None:
                walk.visit(path if len(names) == 1 else f"{path}.{name}", inner)

    return visit


def _cell(walk: Walk, path: str, cell: types.CellType) -> None:
    try:
        walk.visit(f"{path}.cell_contents", cell.cell_contents)
    except ValueError:  # empty
        return


def _nothing(walk: Walk, path: str, value: Any) -> None:
    """Show nothing."""


def _register() -> None:
    register(types.FunctionType, _function, order=CONTAINERS)
    register(types.MethodType, _method, order=CONTAINERS)
    register(type(functools.lru_cache(_nothing)), _cached)
    register(type, _class)
    register(_ClassContent, _content)
    register(property, _parts("fget", "fset", "fdel"))
    register(staticmethod, _parts("__func__"))
    register(classmethod, _parts("__func__"))
    register(functools.cached_property, _parts("func"))
    register(types.CellType, _cell)
    class_visits.append(show_class_of)
    for kind in (*_NO_CONTENT[:-1], types.MethodWrapperType, types.GenericAlias, types.UnionType):
        register(kind, _nothing)


_register()
