"""Kinds of the standard library that hold memory, references or other objects in ways of their own."""

from __future__ import annotations

import _io
import array
import ctypes
import io
import logging
import mmap
import os
import queue
import stat
import threading
import types
import weakref
from collections.abc import Iterable
from contextlib import closing, suppress
from contextvars import Context, ContextVar
from typing import Any

import numpy as np

from parity.capture.arrays import role_of_array
from parity.capture.leaf import Leaf, Role
from parity.capture.modules import is_of_user
from parity.capture.names import component_from_name
from parity.capture.pickled import digest_of_pickle
from parity.capture.registry import Visit, register
from parity.capture.walk import Walk

__all__ = ["holds_of_user", "is_thread_of_user"]

_CFuncPtr: Any = type(ctypes.pythonapi.Py_IncRef).__base__
_WHOLE = 1 << 28
"""Bytes of one anonymous file or mapping above which its content is not read at each mark."""


def _memory(walk: Walk, path: str, value: Any) -> None:
    """Show what has a buffer: as an array where its format is one of numbers, else as bytes."""
    component = component_from_name(path)
    if not walk.is_new(path, value, component):
        return
    if isinstance(value, mmap.mmap):
        walk.leaf(f"{path}.tell()", mmap.mmap.tell(value), "data.position", "position")
    with memoryview(value) as view:
        if view.readonly and isinstance(value, mmap.mmap):  # nobody can change it through this
            walk.leaf(f"{path}.len", view.nbytes, component, "structure")
            return
        if view.nbytes > _WHOLE and isinstance(value, mmap.mmap):
            walk.not_seen(path, value)
            return
        if view.format in ("B", "c", "b") or not view.nbytes:
            _octets(walk, path, view, type(value).__name__, component)
            return
    numbers = np.array(value)
    walk.array(path, numbers, component, role_of_array(numbers.ndim))


def _octets(walk: Walk, path: str, view: memoryview, name: str, component: str) -> bool:
    """Show bytes, by what they hold where they are one pickle; return whether they are."""
    # its size too depends on which of its equal parts are one object
    if view.ndim == 1 and view[:1].tobytes() == b"\x80" and (held := digest_of_pickle(view.tobytes())) is not None:
        walk.add(path, Leaf("array", component, f"{name} of a pickle", held), view.tobytes)
        return True
    data = view if view.c_contiguous else view.tobytes()
    walk.data(path, data, f"{name}[{view.nbytes}]", component, "array")
    return False


def _ctypes(walk: Walk, path: str, value: Any) -> None:
    """Show an array, a structure or a number of C; a pointer by the object that it keeps alive, never followed."""
    component = component_from_name(path)
    if not walk.is_new(path, value, component):
        return
    kept = getattr(value, "_objects", None)
    if isinstance(value, ctypes._Pointer | _CFuncPtr):
        walk.visit(f"{path}._objects", kept) if kept else walk.not_seen(path, value)
    elif isinstance(value, ctypes.Array) and value._type_ in _NUMBERS:
        numbers = np.frombuffer(value, dtype=np.dtype(value._type_)) if len(value) else np.zeros(0)
        walk.array(path, numbers, component, "array")
    else:
        with memoryview(value) as view:
            role: Role = "scalar" if isinstance(value, ctypes._SimpleCData) else "array"
            walk.data(path, view.tobytes(), f"{type(value).__name__}[{view.nbytes}]", component, role)


_NUMBERS = (
    ctypes.c_float, ctypes.c_double, ctypes.c_int8, ctypes.c_uint8, ctypes.c_int16, ctypes.c_uint16, ctypes.c_int32,
    ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64, ctypes.c_bool,
)  # fmt: skip


def _bytes_io(walk: Walk, path: str, value: io.BytesIO) -> None:
    component = component_from_name(path)
    if walk.is_new(path, value, component) and not value.closed:
        with value.getbuffer() as view:
            place: int | str = io.BytesIO.tell(value)
            if _octets(walk, path, view, "BytesIO", component) and place == view.nbytes:
                place = "its end"
        walk.leaf(f"{path}.tell()", place, component, "scalar")


def _string_io(walk: Walk, path: str, value: io.StringIO) -> None:
    component = component_from_name(path)
    if walk.is_new(path, value, component) and not value.closed:
        text = io.StringIO.getvalue(value)
        walk.data(path, text.encode("utf-8", "surrogatepass"), f"StringIO[{len(text)}]", component, "scalar")
        walk.leaf(f"{path}.tell()", io.StringIO.tell(value), "data.position", "position")


def _file(walk: Walk, path: str, value: Any) -> None:
    """Show the content of a file that has no name any more, and how far one that is only read has been read.

    Files with a name are seen in their folder. A text that is gone through line by line does not tell its position.
    """
    if not walk.is_new(path, value, component_from_name(path)) or value.closed:
        return
    try:
        number = value.fileno()
        about = os.fstat(number)
        if stat.S_ISREG(about.st_mode) and about.st_nlink and value.readable() and not value.writable():
            walk.leaf(f"{path}.tell()", value.tell(), "data.position", "scalar")
    except (OSError, ValueError, AttributeError):
        return
    if not stat.S_ISREG(about.st_mode) or about.st_nlink:
        return
    if about.st_size > _WHOLE:
        walk.not_seen(path, value)
        return
    content = os.pread(number, about.st_size, 0)  # moves no position
    walk.data(path, content, f"{type(value).__name__}[{about.st_size}]", component_from_name(path), "array")


def _database(walk: Walk, path: str, value: Any) -> None:
    """Show the rows of a database of SQLite that is in memory; one in a file is seen there.

    A copy is asked: the bytes also hold pages that are free, and the connection may give rows in a form of its own.
    """
    if not walk.is_new(path, value, component_from_name(path)):
        return
    import sqlite3  # it is loaded: the value is of it

    if any(file for _, _, file in sqlite3.Cursor(value).execute("PRAGMA database_list")):
        return
    with closing(sqlite3.connect(":memory:")) as copy:
        copy.deserialize(value.serialize())
        text = "\n".join(copy.iterdump())
    walk.data(path, text.encode(), "sqlite3.Connection", component_from_name(path), "array")


def _reference(walk: Walk, path: str, value: Any) -> None:
    """Follow a weak reference to what it refers to."""
    referent = weakref.ref.__call__(value)
    if referent is None:
        walk.leaf(f"{path}()", None, component_from_name(path), "structure")
    else:
        walk.visit(f"{path}()", referent)


def _proxy(walk: Walk, path: str, value: Any) -> None:
    try:
        walk.visit(path, value.__repr__.__self__)  # a bound method of the referent holds it
    except (ReferenceError, AttributeError):
        walk.not_seen(path, weakref.ref)


def _finalizer(walk: Walk, path: str, value: weakref.finalize[Any, Any]) -> None:
    alive = value.peek()
    if alive is not None and walk.is_new(path, value, component_from_name(path)):
        for name, item in zip(("obj", "func", "args", "kwargs"), alive, strict=True):
            walk.visit(f"{path}.{name}", item)


def is_thread_of_user(thread: threading.Thread) -> bool:
    """Return whether a thread runs what is the user's: a function, or a class of threads of his own."""
    target = getattr(getattr(thread, "_target", None), "__module__", None)
    return is_of_user(type(thread).__module__) or (isinstance(target, str) and is_of_user(target))


def _queue(walk: Walk, path: str, value: queue.Queue[Any]) -> None:
    """Show a queue; while threads of the trainer run, how far it is filled is a matter of time."""
    if any(map(is_thread_of_user, threading.enumerate())):
        walk.dead(f"{path}.queue")
    _without(_OF_QUEUES)(walk, path, value)


def _context_variable(walk: Walk, path: str, value: ContextVar[Any]) -> None:
    with suppress(LookupError):  # where nobody has set it, it has its default, if it has one
        walk.visit(f"{path}[{value.name!r}]", value.get())


def _namespace(walk: Walk, path: str, value: types.SimpleNamespace) -> None:
    """Show the attributes: it is a type of C, and has nothing else."""
    if walk.is_new(path, value, component_from_name(path)):
        for name, item in vars(value).items():
            walk.visit(f"{path}.{name}", item)


def _future(walk: Walk, path: str, value: Any) -> None:
    """Show the result of a future, where it has one; to ask for an exception would mark it as read.

    Whether a batch that is made in another thread is ready at a mark is a matter of time: a result that is not there
    yet is written before anybody can read it.
    """
    if not walk.is_new(path, value, component_from_name(path)):
        return
    if value.done() and not value.cancelled():
        walk.visit(f"{path}._result", getattr(value, "_result", None))
    else:
        _later(walk, f"{path}._result", "a result that is not there yet")
    for at, item in enumerate(getattr(value, "_done_callbacks", ())):
        walk.visit(f"{path}._done_callbacks[{at}]", item)


def _later(walk: Walk, path: str, why: str) -> None:
    """Note what no look at this process can show; whether it changes cannot be asked either, and is not claimed."""
    walk.dead(path)
    walk.snapshot.unseen[path] = why
    walk.snapshot.probes[path] = "pending"


def _result_of_pool(walk: Walk, path: str, value: Any) -> None:
    """Show the result that a pool of `multiprocessing` gives, where it has one, as of a future."""
    if not walk.is_new(path, value, component_from_name(path)):
        return
    if value.ready():
        walk.visit(f"{path}._value", value._value)
    else:
        _later(walk, f"{path}._value", "a result that is not there yet")
    for name in ("_callback", "_error_callback"):
        if getattr(value, name, None) is not None:
            walk.visit(f"{path}.{name}", getattr(value, name))


def _context(walk: Walk, path: str, value: Context) -> None:
    if walk.is_new(path, value, component_from_name(path)):
        for variable, content in value.items():
            walk.visit(f"{path}[{variable.name!r}]", content)


def _of_thread(walk: Walk, path: str, value: Any) -> None:
    """Show what this thread has in a `threading.local`."""
    if walk.is_new(path, value, component_from_name(path)):
        for name, item in list(vars(value).items()):
            walk.visit(f"{path}.{name}", item)


def _without(names: Iterable[str], *, workers: bool = False) -> Visit:
    """Return what shows the attributes of an object that its library does not give it.

    Args:
        names: Those that its library gives it.
        workers: Whether it has processes, whose memory nothing here shows.
    """
    left_out = frozenset(names)

    def visit(walk: Walk, path: str, value: Any) -> None:
        if walk.is_new(path, value, component_from_name(path)):
            for name, item in list(vars(value).items()):
                if name not in left_out:
                    walk.visit(f"{path}.{name}", item)
            if workers:
                _later(walk, f"{path}.workers", "what the processes of a pool hold")

    return visit


def _logger(walk: Walk, path: str, value: logging.Logger) -> None:
    """Show what a user put on a logger, on its handlers and on its filters."""
    if not walk.is_new(path, value, component_from_name(path)):
        return
    for kind in ("handlers", "filters"):
        for at, item in enumerate(getattr(value, kind)):
            if is_of_user(type(item).__module__) or isinstance(item, types.FunctionType):
                walk.visit(f"{path}.{kind}[{at}]", item)
    for name, item in list(vars(value).items()):
        if name not in _OF_LOGGERS and not isinstance(item, logging.Logger):
            walk.visit(f"{path}.{name}", item)


def holds_of_user(logger: logging.Logger) -> bool:
    """Return whether a logger has a filter, a handler or an attribute of the user."""
    items = (*logger.handlers, *logger.filters)
    return not vars(logger).keys() <= _OF_LOGGERS or any(is_of_user(type(item).__module__) for item in items)


def _exception(walk: Walk, path: str, value: BaseException) -> None:
    if not walk.is_new(path, value, component_from_name(path)):
        return
    for name in ("args", "__cause__", "__context__"):
        item = getattr(value, name)
        if item:
            walk.visit(f"{path}.{name}", item)


def _frame(walk: Walk, path: str, value: types.FrameType) -> None:
    if is_of_user(value.f_globals.get("__name__")) and walk.is_new(path, value, "code"):
        for name, item in dict(value.f_locals).items():
            walk.visit(f"{path}.f_locals.{name}", item)


def _environment(walk: Walk, path: str, value: Any) -> None:
    """Show nothing: what the run sets in its environment is shown for the whole process."""


_OF_LOGGERS = frozenset(("name", "level", "parent", "propagate", "handlers", "filters", "disabled", "_cache",
                         "manager", "root", "artifact_name"))  # fmt: skip
"""Attributes of a logger; the last one is of PyTorch's own, which its compiler sets when it is imported."""
_OF_HANDLERS = ("_name", "level", "formatter", "lock", "_closed", "stream", "terminator", "baseFilename", "mode",
                "encoding", "errors", "delay", "_builtin_open")  # fmt: skip
_OF_THREADS = ("_name", "_daemonic", "_ident", "_native_id", "_tstate_lock", "_started", "_is_stopped",
               "_initialized", "_stderr", "_invoke_excepthook", "_handle", "_context")  # fmt: skip
_OF_EXECUTORS = ("_max_workers", "_idle_semaphore", "_idle_worker_semaphore", "_threads", "_broken", "_shutdown",
                 "_shutdown_lock", "_thread_name_prefix", "_mp_context", "_processes", "_executor_manager_thread",
                 "_queue_count", "_executor_manager_thread_wakeup", "_pending_work_items", "_call_queue",
                 "_result_queue", "_work_ids", "_cancel_pending_futures", "_shutdown_thread",
                 "_safe_to_dynamically_spawn_children", "_max_tasks_per_child", "_force_shutting_down",
                 "_kill_workers")  # fmt: skip
_OF_POOLS = ("_pool", "_state", "_ctx", "_inqueue", "_outqueue", "_quick_put", "_quick_get", "_taskqueue",
             "_change_notifier", "_cache", "_maxtasksperchild", "_processes", "_worker_handler", "_task_handler",
             "_result_handler", "_terminate")  # fmt: skip
_OF_QUEUES = ("mutex", "not_empty", "not_full", "all_tasks_done", "unfinished_tasks")
_OF_ASYNC_QUEUES = ("_loop", "_getters", "_putters", "_unfinished_tasks", "_finished")
"""Workers and wiring of executors, and who waits at a queue: which of them is idle at a mark is a matter of time. How
many items a process has put into a queue says nothing of those in it."""


def _register() -> None:
    rows: tuple[tuple[tuple[Any, ...], Visit, bool], ...] = (
        ((bytearray, memoryview, array.array, mmap.mmap), _memory, True),
        ((ctypes._SimpleCData, ctypes.Array, ctypes.Structure, ctypes.Union, ctypes._Pointer, _CFuncPtr),
         _ctypes, False),
        ((io.BytesIO,), _bytes_io, True),
        ((io.StringIO,), _string_io, True),
        ((_io._IOBase,), _file, True),
        (("sqlite3.Connection",), _database, True),
        ((weakref.ref,), _reference, True),
        ((weakref.ProxyType, weakref.CallableProxyType), _proxy, False),
        ((weakref.finalize,), _finalizer, False),
        ((ContextVar,), _context_variable, False),
        ((Context,), _context, False),
        (("_asyncio.Future", "_asyncio.Task", "concurrent.futures._base.Future"), _future, False),
        (("multiprocessing.pool.ApplyResult",), _result_of_pool, False),
        (("concurrent.futures._base.Executor",), _without(_OF_EXECUTORS), False),
        (("concurrent.futures.process.ProcessPoolExecutor",), _without(_OF_EXECUTORS, workers=True), False),
        (("multiprocessing.pool.Pool",), _without(_OF_POOLS, workers=True), False),
        (("multiprocessing.pool.ThreadPool",), _without(_OF_POOLS), False),
        ((threading.local,), _of_thread, False),
        ((queue.Queue,), _queue, False),
        (("asyncio.queues.Queue",), _without(_OF_ASYNC_QUEUES), False),
        ((threading.Thread,), _without(_OF_THREADS), False),
        ((logging.Handler,), _without(_OF_HANDLERS), False),
        ((logging.Logger,), _logger, False),
        ((BaseException,), _exception, True),
        ((types.FrameType,), _frame, False),
        ((types.SimpleNamespace,), _namespace, False),
        ((type(os.environ),), _environment, False),
    )  # fmt: skip
    for kinds, visit, attributes in rows:
        for kind in kinds:
            register(kind, visit, attributes=attributes)


_register()
