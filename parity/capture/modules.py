"""Modules of the user: what a training loop keeps in a global of any module, and which modules are not the user's."""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from parity.capture.registry import is_a
from parity.capture.walk import Walk

__all__ = ["class_path", "is_library_file", "is_of_user", "show_modules"]

_SUITE = Path(__file__).parents[3]
"""Folder of the suite: in its own checkout its files lie where a user's would."""
_PACKAGES = frozenset(("site-packages", "dist-packages"))
_NO_STATE = frozenset(("In", "Out", "get_ipython", "exit", "quit", "open"))
"""Names that an interactive shell puts among the user's variables."""


@functools.lru_cache(maxsize=1)
def _library_folders() -> tuple[Path, ...]:
    names = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders = {*names, *site.getsitepackages(), site.getusersitepackages()}
    return tuple({Path(folder).resolve() for folder in folders if folder})


@functools.lru_cache(maxsize=1 << 14)
def is_library_file(file: str) -> bool:
    """Return whether a file belongs to Python or to an installed package.

    The place of the file decides, not a list of names: a user's package may be called anything, and what is installed
    in place for development is the user's own. The folders of this interpreter are not all: an environment may take
    packages of another one, as with `--system-site-packages`, by a `.pth` file or by PYTHONPATH.
    """
    path = Path(file)
    if _PACKAGES & set(path.parts):
        return True
    with_links = (path, path.resolve())
    return any(one.is_relative_to(folder) for one in with_links for folder in _library_folders())


def is_of_user(module: str | None) -> bool:
    """Return whether a module is the user's: neither of Python, nor installed, nor of this suite.

    Args:
        module: Its name. The outermost package decides: inside of an installed one some files lie elsewhere, or have
            no file. A module without a file that no package of files has was made on the fly, by the user.
    """
    if not module:
        return False
    root = module.partition(".")[0]
    package, held = sys.modules.get(root), sys.modules.get(module)
    known = _asked.get(module)
    # compared by `is`: each call of `id` raises an audit event, and one capture asks for some five hundred modules
    if known is None or known[0] is not package or known[1] is not held:
        known = _asked[module] = package, held, _is_of_user(module, root)
    return known[2]


_asked: dict[str, tuple[ModuleType | None, ModuleType | None, bool]] = {}
"""Name of a module to its package and itself as they were when it was asked for, and the answer."""


def _is_of_user(module: str, root: str) -> bool:
    if root == "parity" or root in sys.builtin_module_names:
        return False
    for name in dict.fromkeys((root, module)):
        held = sys.modules.get(name)
        spec = getattr(held, "__spec__", None)
        if getattr(spec, "origin", None) in ("built-in", "frozen"):
            return False
        file = getattr(held, "__file__", None)
        if isinstance(file, str):
            of_a_side = root.rpartition("_")[2] == "side" and Path(file).is_relative_to(_SUITE)
            return not (of_a_side or is_library_file(file))
        if spec is not None and getattr(spec, "origin", None) is None and name == module:
            return False  # a folder of packages without a file of its own holds nothing
    return True


def class_path(cls: type) -> str:
    """Return the path of a class, such as `helper:Meter` or `helper:train().Meter`."""
    return f"{cls.__module__}:{cls.__qualname__.replace('.<locals>', '()')}"


def show_modules(walk: Walk, names: Iterable[str], shown: Mapping[str, frozenset[str]]) -> None:
    """Show the globals of all modules of the user, after everything that the loop itself leads to.

    Under pytest the modules of other tests are in the process too; then those count that the loop's own lead to, by
    what they import, name in a text or hold a function or class of, and those that have no file.

    Args:
        walk: Takes them.
        names: Modules of the loop's frames.
        shown: Module to the globals of it that are shown already.
    """
    mine = _modules_of_user()
    if "_pytest" in sys.modules:
        shown_here = _reached(names, mine) | _known["without a file"]
        mine = {name: held for name, held in mine.items() if name in shown_here}
    done: set[int] = set()
    for name, held in mine.items():
        content = getattr(held, "__dict__", None)
        if not isinstance(content, dict) or id(content) in done:
            continue  # the main module of a child process has two names
        done.add(id(content))
        for key, value in list(content.items()):
            if not isinstance(key, str) or key in shown.get(name, ()) or key in _NO_STATE or _is_dunder(key):
                continue
            if is_a(value, ModuleType, BuiltinFunctionType):
                continue
            if is_a(value, FunctionType, type) and value.__module__ != name:
                continue  # shown where it is made, if that is the user's too
            walk.place(f"{name}:{key}", value)
    for path, value in _put_on_libraries(mine):
        walk.place(path, value)


def _modules_of_user() -> dict[str, ModuleType]:
    """Return the modules of the user; asked anew only where there are others than at the last capture."""
    newest = next(reversed(sys.modules))  # what is imported again stands last
    key = (len(sys.modules), newest, id(sys.modules.get(newest)))
    replaced = any(sys.modules.get(name) is not held for name, held in _known.get("mine", {}).items())
    if replaced or _known.get("key") != key:  # one that is put in the place of another keeps its position
        there: list[tuple[str, Any]] = list(sys.modules.items())
        _known["key"] = key
        found = {name: held for name, held in there if held is not None and is_of_user(name)}
        _known["mine"] = found
        _known["without a file"] = {name for name, held in found.items() if not getattr(held, "__file__", None)}
    mine: dict[str, ModuleType] = _known["mine"]
    return dict(mine)


_known: dict[str, Any] = {}


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _reached(names: Iterable[str], mine: Mapping[str, ModuleType]) -> set[str]:
    """Return the modules of the user that some modules lead to, these among them."""
    waiting, found = [name for name in names if name in mine], set[str]()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            held = mine[name]
            waiting += [other for other in _leads_to(name, len(vars(held))) if other in mine and other not in found]
    return found


@functools.lru_cache(maxsize=1 << 12)
def _leads_to(name: str, size: int) -> frozenset[str]:
    """Return the modules that the content of a module names; asked again when the module has grown."""
    held = sys.modules[name]
    package = getattr(held, "__package__", None) or ""
    found = _imported(getattr(held, "__file__", None), package)
    for value in list(vars(held).values()):
        other = value.__name__ if is_a(value, ModuleType) else getattr(type(value), "__module__", None)
        if is_a(value, FunctionType, type):
            other = value.__module__
        if isinstance(other, str):
            found.add(other)
    for code in _codes_of(held):
        texts = [const for const in code.co_consts if isinstance(const, str)]
        for word in (*code.co_names, *texts):
            found |= {word, f"{package}.{word}"} & sys.modules.keys()
    return frozenset(found)


def _imported(file: str | None, package: str) -> set[str]:
    """Return what the source of a module imports, anywhere in it: also what it takes no function or class of."""
    try:
        tree = ast.parse(Path(file or "").read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return set()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {f"{base}.{one.name}" for one in node.names}
            if not all(_is_module_of(base, one.name) for one in node.names):
                found.add(base)
    return found


def _is_module_of(package: str, name: str) -> bool:
    """Return whether an import of a name takes a module of a package, and so nothing of the package itself.

    In that lie the modules of others too: importing puts each one there. A value may have the name of a module.
    """
    inside = sys.modules.get(f"{package}.{name}")
    return inside is not None and getattr(sys.modules.get(package), name, None) is inside


_CACHED = type(functools.lru_cache(id))


def _codes_of(module: ModuleType) -> Iterator[CodeType]:
    """Return the code of the functions and methods of a module, and of the functions inside of them."""
    waiting: list[Any] = []
    for value in list(vars(module).values()):
        if is_a(value, type) and value.__module__ == module.__name__:
            waiting += [getattr(item, "__func__", item) for item in vars(value).values()]
        else:
            waiting.append(getattr(value, "__wrapped__", None) if is_a(value, _CACHED) else value)
    codes = [f.__code__ for f in waiting if is_a(f, FunctionType) and f.__module__ == module.__name__]
    while codes:
        code = codes.pop()
        yield code
        codes += [const for const in code.co_consts if isinstance(const, CodeType)]


def _put_on_libraries(mine: Mapping[str, ModuleType]) -> Iterator[tuple[str, Any]]:
    """Return what the user's code puts on builtins, and on modules and classes of libraries.

    These have too many attributes to look at all; those count whose name some code of the user stores.
    """
    shown: set[str] = set()
    for name, held in mine.items():
        stored, used = _stored(name, len(vars(held)))
        if not stored:
            continue
        waiting = [builtins, *vars(held).values(), *(sys.modules.get(one) for one in used)]
        done: set[int] = set()
        while waiting:
            target = waiting.pop()
            if not is_a(target, ModuleType, type) or (identity := id(target)) in done:
                continue
            done.add(identity)
            path = class_path(target) if is_a(target, type) else f"{target.__name__}:"
            if is_of_user(path.partition(":")[0]):
                continue
            content = vars(target)
            waiting += [content[word] for word in used if word in content]
            for attribute in stored & content.keys():
                where = f"{path}{'' if path.endswith(':') else '.'}{attribute}"
                if where not in shown and not _is_code(content[attribute]) and not _is_dunder(attribute):
                    shown.add(where)
                    yield where, content[attribute]


def _is_code(value: Any) -> bool:
    """Return whether an attribute of a library is a function of its own, in whatever way it was made."""
    if is_a(value, *_CODE):
        return True
    home, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    return callable(value) and isinstance(name, str) and isinstance(home, str) and not is_of_user(home)


_CODE = (FunctionType, BuiltinFunctionType, ModuleType, type, property)


@functools.lru_cache(maxsize=1 << 12)
def _stored(name: str, size: int) -> tuple[frozenset[str], frozenset[str]]:
    """Return the attributes that the code of a module stores, by name or `setattr`, and all names in it."""
    stored: set[str] = set()
    used: set[str] = set()
    for code in _codes_of(sys.modules[name]):
        stored |= {i.argval for i in dis.get_instructions(code) if i.opname == "STORE_ATTR"}
        if "setattr" in code.co_names:
            stored |= {const for const in code.co_consts if isinstance(const, str)}
        used |= set(code.co_names)
    return frozenset(stored), frozenset(used)
