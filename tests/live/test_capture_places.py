"""The places in which a loop may keep what it continues from: each is seen, at a path that names it."""

import array
import asyncio
import collections
import ctypes
import functools
import hashlib
import importlib
import io
import itertools
import logging
import mmap
import os
import sqlite3
import sys
import tempfile
import threading
import types
import weakref
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.capture import StateSnapshot, Walk, capture
from parity.capture.frames import Scope
from parity.capture.modules import is_of_user
from tests.live import hiding_module


def see(**values: Any) -> StateSnapshot:
    walk = Walk()
    for name, value in values.items():
        walk.root(name, value)
    return walk.finish()


def changed(before: StateSnapshot, after: StateSnapshot) -> dict[str, str]:
    """Return the paths that differ, with the roles of their leaves."""
    paths = before.leaves.keys() | after.leaves.keys()
    return {
        p: (after.leaves.get(p) or before.leaves[p]).role
        for p in paths
        if not (before.leaves.get(p) and before.leaves[p].same(after.leaves.get(p)))
    }


class Dict(dict[str, Any]):
    """Has attributes beside its items."""


class List(list[Any]):
    """Has attributes beside its items."""


class Array(np.ndarray[Any, Any]):
    """Has attributes beside its elements."""


class Job(threading.Thread):
    """Has attributes beside those of a thread."""


class Pair(ctypes.Structure):
    _fields_ = (("mean", ctypes.c_double), ("count", ctypes.c_long))


class Slotted:
    __slots__ = ("__hidden", "average")

    def __init__(self) -> None:
        self.__hidden = np.zeros(3)
        self.average = self.__hidden


class Filter(logging.Filter):
    """Has attributes beside its name."""


def with_average(cls: Any, *args: Any) -> tuple[Any, Any]:
    value = cls(*args)
    value.average = np.zeros(3)
    return value, value.average


def with_logger(part: str) -> tuple[Any, Any]:
    logger = logging.Logger("of a test")
    inside, average = with_average(Filter)
    (logger.addFilter if part == "filter" else logger.handlers.append)(inside)
    return logger, average


def generator() -> tuple[Any, Any]:
    kept = np.zeros(3)

    def batches() -> Iterator[int]:
        average = kept
        yield 0
        average = np.zeros(1)
        yield int(average[0])

    made = batches()
    next(made)
    return made, kept


def coroutine() -> tuple[Any, Any]:
    kept = np.zeros(3)

    async def train(average: Any) -> None:
        await asyncio.sleep(0)
        average += 1

    made = train(kept)
    made.send(None)
    return made, kept


def asynchronous_generator() -> tuple[Any, Any]:
    kept = np.zeros(3)

    async def batches(average: Any) -> Any:
        yield 0
        yield average

    made = batches(kept)
    with pytest.raises(StopIteration):
        made.__anext__().send(None)
    return made, kept


def referred(kind: Callable[[Any], Any]) -> tuple[Any, Any]:
    owner, average = with_average(Weak)
    KEPT.append(owner)
    return kind(owner), average


KEPT: list[Any] = []
"""Owners that weak references refer to."""


def pairs(*items: Any) -> tuple[Any, Any]:
    return items[0], items[1]


def in_objects() -> tuple[Any, Any]:
    average = np.zeros(3)
    held = np.empty((2, 1), object)
    held[1, 0] = {"average": average}
    return held, average


def in_fields() -> tuple[Any, Any]:
    held = np.zeros(2, [("count", "i4"), ("average", "f8", (3,))])
    return held, held["average"]


def once(value: Any) -> tuple[Any, Any]:
    return value, value


def raised() -> tuple[Any, Any]:
    error = ValueError(np.zeros(3))
    return error, error.args[0]


def keyed() -> tuple[Any, Any]:
    owner, average = with_average(type("Key", (), {}))
    return {owner: 1}, average


def bound() -> tuple[Any, Any]:
    history = [np.zeros(3)]
    return history.append, history[0]


def finalized() -> tuple[Any, Any]:
    average = np.zeros(3)
    owner = types.SimpleNamespace
    return weakref.finalize(Slotted.__init__, print, average), average if owner else None


HELD: dict[str, Callable[[], tuple[Any, Any]]] = {
    "attribute of a dict": lambda: with_average(Dict),
    "attribute of a list": lambda: with_average(List),
    "attribute of an array": lambda: with_average(lambda: np.zeros(2).view(Array)),
    "attribute of a thread": lambda: with_average(Job),
    "argument of a thread": lambda: pairs(threading.Thread(args=(kept := np.zeros(3),)), kept),
    "slots": lambda: (s := Slotted(), s.average),
    "filter of a logger": lambda: with_logger("filter"),
    "handler of a logger": lambda: with_logger("handler"),
    "generator": generator,
    "coroutine": coroutine,
    "asynchronous generator": asynchronous_generator,
    "weak reference": lambda: referred(weakref.ref),
    "weak proxy": lambda: referred(weakref.proxy),
    "weak dictionary by key": lambda: weak_key(),
    "weak set": lambda: weak_set(),
    "finalizer": finalized,
    "array of objects": in_objects,
    "array of fields": in_fields,
    "partial": lambda: pairs(functools.partial(print, kept := np.zeros(3)), kept),
    "exception": raised,
    "key of a dict": keyed,
    "bound method of a list": bound,
    "mapping": lambda: pairs(types.MappingProxyType({"a": (kept := np.zeros(3))}), kept),
    "chained maps": lambda: pairs(collections.ChainMap({}, {"a": (kept := np.zeros(3))}), kept),
    "cycle": lambda: pairs(itertools.cycle([kept := np.zeros(3)]), kept),
    "repeat": lambda: pairs(itertools.repeat(kept := np.zeros(3)), kept),
    "tee": lambda: pairs(itertools.tee([kept := np.zeros(3)])[0], kept),
    "accumulate": lambda: pairs(itertools.accumulate([1.0], initial=(kept := np.zeros(3))), kept),
    "array of C": lambda: once((ctypes.c_double * 3)()),
    "array of Python": lambda: once(array.array("d", [0.0, 0.0])),
    "bytearray": lambda: once(bytearray(8)),
    "memoryview": lambda: once(memoryview(bytearray(8))),
    "memory map": lambda: once(mmap.mmap(-1, 16)),
}


class Weak:
    """Can be referred to weakly."""


def weak_key() -> tuple[Any, Any]:
    owner, average = with_average(Weak)
    KEPT.append(owner)
    return weakref.WeakKeyDictionary({owner: average}), average


def weak_set() -> tuple[Any, Any]:
    owner, average = with_average(Weak)
    KEPT.append(owner)
    return weakref.WeakSet([owner]), average


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("place", HELD)
def test_what_an_object_of_python_holds_is_seen(place: str) -> None:
    holder, average = HELD[place]()
    before = see(v=holder)
    assert before.leaves == see(v=holder).leaves
    if isinstance(average, np.ndarray):
        average += 1.5
    else:
        average[0] = 7
    roles = set(changed(before, see(v=holder)).values())
    assert roles & {"array"}
    assert not before.unseen


@pytest.mark.parametrize(
    ("value", "change"),
    [
        (io.BytesIO(b"abc"), lambda v: v.write(b"x")),
        (io.StringIO("abc"), lambda v: v.write("x")),
        (Pair(1.0, 2), lambda v: setattr(v, "mean", 2.0)),
        (ctypes.c_double(3.0), lambda v: setattr(v, "value", 4.0)),
    ],
)
def test_memory_that_is_no_array_is_seen(value: Any, change: Callable[[Any], Any]) -> None:
    before = see(v=value)
    change(value)
    assert "v" in changed(before, see(v=value))


def test_a_file_without_a_name_is_seen_and_its_position_stays() -> None:
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(b"abc")
        before = see(v=file)
        assert file.tell() == 3
        file.write(b"x")
        assert changed(before, see(v=file)) == {"v": "array"}


def test_an_array_in_a_file_is_seen(tmp_path: Path) -> None:
    held = np.memmap(tmp_path / "average", np.float64, "w+", shape=(3,))
    before = see(v=held)
    held[1] = 2.0
    assert changed(before, see(v=held)) == {"v": "array"}


def test_a_database_in_memory_is_seen_and_left_as_it_was() -> None:
    base = sqlite3.connect(":memory:")
    base.execute("create table t (x real)")
    base.commit()
    before = see(v=base)
    assert before.leaves == see(v=base).leaves
    base.execute("insert into t values (0.5)")
    assert changed(before, see(v=base)) == {"v": "array"}
    assert base.in_transaction
    base.close()


@pytest.mark.parametrize("place", [*hiding_module.PLACES, *hiding_module.OTHERS])
def test_what_another_module_of_the_user_keeps_is_seen(place: str) -> None:
    def look() -> StateSnapshot:
        frame = sys._getframe(1)
        return capture([Scope("", frame.f_code, frame.f_lasti, {}, frame.f_globals)])

    hiding_module.add(place, 1.5)
    before, asked = look(), hiding_module.Guarded.__dict__["asked"]
    hiding_module.add(place, 0.5)
    found = changed(before, look())
    assert found, place
    assert all("hiding_module" in path or "numpy" in path or "functools" in path for path in found)
    assert hiding_module.Guarded.__dict__["asked"] == asked


def test_a_module_that_was_made_on_the_fly_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    made = types.ModuleType("made_on_the_fly")
    monkeypatch.setitem(sys.modules, "made_on_the_fly", made)
    made.average = np.zeros(3)  # type: ignore[attr-defined]
    assert capture([]).leaves.keys() & {"made_on_the_fly:average"} == set()  # no loop, no modules
    frame = sys._getframe()
    assert "made_on_the_fly:average" in capture([Scope.of(frame)]).leaves


@pytest.mark.parametrize(
    ("line", "inside", "seen"),
    [
        ("from {} import used", "", {"used"}),  # the other one lies in the package because something else imported it
        ("from {} import used", "from {} import total", {"", "used", "other"}),
        ("from {} import used, total", "", {"", "used", "other"}),
        ("import {}", "", {"", "used", "other"}),
        ("from {} import used, other", "", {"used", "other"}),
        ("from {} import total", "total = [0.5]", {"", "used", "other"}),  # a value, and a module of that name
    ],
)
def test_a_module_inside_of_a_package_leads_to_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, inside: str, seen: set[str]
) -> None:
    """Under pytest, where the modules of all tests are in the process."""
    name = f"whole_{hashlib.sha256(f'{line} {inside}'.encode()).hexdigest()[:8]}"
    (tmp_path / name).mkdir()
    for file, text in (("__init__", "total = [0.5]"), ("used", inside.format(name)), ("other", ""), ("total", "")):
        (tmp_path / name / f"{file}.py").write_text(f"{text}\nkept = [1.5]\n")
    loop = f"import sys\n{line.format(name)}\ndef frame(): return sys._getframe()\n"
    (tmp_path / f"loop_{name}.py").write_text(loop)
    monkeypatch.syspath_prepend(tmp_path)
    modules = {"": name, "used": f"{name}.used", "other": f"{name}.other", "total": f"{name}.total"}
    value = importlib.import_module(name).total
    for module in modules.values():
        importlib.import_module(module)
    sys.modules[name].total = value  # type: ignore[attr-defined]  # which the module of that name has replaced
    modules["loop"] = f"loop_{name}"
    loaded = [importlib.import_module(modules["loop"])]
    try:
        found = capture([Scope.of(loaded[-1].frame())]).leaves
    finally:
        for module in modules.values():
            del sys.modules[module]
    assert {one for one, module in modules.items() if f"{module}:kept[0]" in found} - {"total"} == seen


def test_the_environment_is_seen_where_the_run_changed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = capture([])
    assert not any(path.startswith("os.environ") and "AVERAGE" in path for path in before.leaves)
    monkeypatch.setitem(os.environ, "AVERAGE", "0.5")
    assert capture([]).leaves["os.environ['AVERAGE']"].digest == "'0.5'"


def test_a_thread_that_nobody_holds_is_seen_and_its_variables_are_listed_as_not_seen() -> None:
    begun, end = threading.Event(), threading.Event()

    def work(average: Any) -> None:
        begun.set()
        end.wait()

    thread = threading.Thread(target=work, args=(np.zeros(3),), daemon=True)
    thread.start()
    begun.wait()
    snapshot = capture([])
    end.set()
    thread.join()
    assert snapshot.leaves["threads[0]._args[0]"].role == "array"
    assert snapshot.unseen == {"threads[0].work()": "variables of a running thread"}


@pytest.mark.parametrize("name", ["sys", "builtins", "json", "numpy.random", "pytest", "parity", "numpy._core", ""])
def test_python_installed_packages_and_the_suite_are_not_the_users(name: str) -> None:
    assert not is_of_user(name)


def test_a_checkout_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trainer_of_a_user.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("trainer_of_a_user")
    assert is_of_user("trainer_of_a_user")
    assert is_of_user(__name__)


def test_a_folder_without_a_file_of_its_own_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "outer_of_a_user" / "inner").mkdir(parents=True)
    (tmp_path / "outer_of_a_user" / "inner" / "file.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    names = ["outer_of_a_user", "outer_of_a_user.inner", "outer_of_a_user.inner.file"]
    for name in names:
        importlib.import_module(name)
    assert [is_of_user(name) for name in names] == [False, False, True]
    made = types.ModuleType("outer_of_a_user.inner.made")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    assert is_of_user(made.__name__)
    for name in names:
        del sys.modules[name]


def test_what_cannot_be_looked_into_is_probed() -> None:
    packed = zlib.compressobj()
    before = see(v=packed)
    assert before.unseen == {"v": "zlib.Compress"}
    assert before.probes.keys() == {"v"}
    assert before.probes == see(v=packed).probes


def test_a_probe_tells_that_it_changed() -> None:
    class Opaque(array.array):  # type: ignore[type-arg]
        pass

    from parity.capture.probes import probe

    value = Opaque("d", [1.0])
    before = probe(value)
    assert before == probe(value)
    value[0] = 2.0
    assert before != probe(value)


def test_an_object_that_raises_when_it_is_looked_at_is_listed_and_the_walk_goes_on() -> None:
    class Broken(dict[str, Any]):
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            raise RuntimeError

    class Unprintable:
        def __repr__(self) -> str:
            raise RuntimeError

    snapshot = see(a=Broken(x=1), b={Unprintable(): 1}, c=3)
    assert snapshot.leaves["a.x"].digest == "1"
    assert "b" in snapshot.unseen
    assert snapshot.leaves["c"].digest == "3"


@pytest.mark.parametrize("name", ["w", "y", "targets", "model", "ema", "loss", "anything"])
def test_a_name_does_not_change_a_role(name: str) -> None:
    values = {name: [np.zeros(3), np.zeros(1), np.zeros(()), 0.5]}
    leaves = see(**values).leaves
    assert [leaves[f"{name}[{at}]"].role for at in range(4)] == ["array", "array", "scalar", "scalar"]
