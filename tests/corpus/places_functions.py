"""Places in functions and what runs: arguments, attributes, caches, closures, partials, generators, threads."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import functools
import itertools
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from typing import Any

from tests.corpus.place import Ways, table

__all__ = ["FUNCTIONS"]


def remembered(value: Any = None, past: list[Any] = []) -> Any:  # noqa: B006 - the default is the place
    if value is not None:
        past[:] = [value]
    return past[0]


def default_argument(first: Any) -> Ways:
    remembered(first)
    return remembered, lambda value: remembered(value)


def averaged(value: Any = None) -> Any:
    if value is not None:
        averaged.last = value  # type: ignore[attr-defined]
    return averaged.last  # type: ignore[attr-defined]


def function_attribute(first: Any) -> Ways:
    averaged(first)
    return averaged, lambda value: averaged(value)


@functools.lru_cache(maxsize=None)  # noqa: UP033
def drawer(name: str) -> dict[str, Any]:
    return {}


def lru_cache(first: Any) -> Ways:
    drawer.cache_clear()
    drawer("mean")["now"] = first

    def write(value: Any) -> None:
        drawer("mean")["now"] = value

    return lambda: drawer("mean")["now"], write


def closure_of_a_list(first: Any) -> Ways:
    lagging = [first]
    return lambda: lagging[0], lambda value: lagging.__setitem__(0, value)


def nonlocal_cell(first: Any) -> Ways:
    lagging = first

    def write(value: Any) -> None:
        nonlocal lagging
        lagging = value

    return lambda: lagging, write


def _third(box: dict[str, Any], key: str, value: Any) -> None:
    box[key] = value


def partial(first: Any) -> Ways:
    put = functools.partial(_third, {"slow": first}, "slow")
    return lambda: put.args[0]["slow"], put


def keywords_of_a_partial(first: Any) -> Ways:
    put = functools.partial(dict, slow=first)
    return lambda: put.keywords["slow"], lambda value: put.keywords.__setitem__("slow", value)


def _averager(inside: Any) -> Generator[Any, Any, None]:
    while True:
        given = yield inside
        if given is not None:
            inside = given


def generator_locals(first: Any) -> Ways:
    running = _averager(first)
    next(running)
    return lambda: next(running), running.send


class Wait:
    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield)


async def _waiting(inside: Any, out: list[Callable[[], Any]]) -> None:
    out.append(lambda: inside)
    while True:
        inside = await Wait()


def coroutine_locals(first: Any) -> Ways:
    out: list[Callable[[], Any]] = []
    coroutine: Coroutine[Any, Any, None] = _waiting(first, out)
    coroutine.send(None)
    weakref.finalize(out[0], coroutine.close)
    return out[0], lambda value: coroutine.send(value)


async def _streaming(inside: Any) -> AsyncIterator[Any]:
    while True:
        given = yield inside
        if given is not None:
            inside = given


def _finished(awaitable: Any) -> Any:
    try:
        awaitable.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("it waited")


def async_generator_locals(first: Any) -> Ways:
    running: Any = _streaming(first)
    _finished(running.__anext__())
    return lambda: _finished(running.asend(None)), lambda value: _finished(running.asend(value))


class Averager(threading.Thread):
    def __init__(self, value: Any) -> None:
        super().__init__(daemon=True)
        self.behind = value


def thread_subclass(first: Any) -> Ways:
    worker = Averager(first)

    def write(value: Any) -> None:
        worker.behind = value

    return lambda: worker.behind, write


SPACE = threading.local()


def thread_local(first: Any) -> Ways:
    SPACE.own = first

    def write(value: Any) -> None:
        SPACE.own = value

    return lambda: SPACE.own, write


CURRENT: contextvars.ContextVar[Any] = contextvars.ContextVar("CURRENT")


def context_variable(first: Any) -> Ways:
    CURRENT.set(first)
    return CURRENT.get, lambda value: CURRENT.set(value) and None


def weak_reference_callback(first: Any) -> Ways:
    class Anchor:
        pass

    anchor = Anchor()
    box = {"slow": first}
    weakref.finalize(anchor, box.clear)
    seen = weakref.ref(anchor)
    finalizers = [one for one in weakref.finalize._registry if one.peek()[0] is anchor]  # type: ignore[attr-defined]
    del box

    def write(value: Any) -> None:
        finalizers[0].peek()[1].__self__["slow"] = value
        assert seen() is anchor

    return lambda: finalizers[0].peek()[1].__self__["slow"], write


class Value:
    def __init__(self, inner: Any) -> None:
        self.inner = inner


def weak_value_dictionary(first: Any) -> Ways:
    strong = {Value(first)}
    seen: weakref.WeakValueDictionary[str, Value] = weakref.WeakValueDictionary(slow=next(iter(strong)))

    def write(value: Any) -> None:
        assert strong
        seen["slow"].inner = value

    return lambda: seen["slow"].inner, write


def weak_key_dictionary(first: Any) -> Ways:
    anchor = Value(0)
    seen = weakref.WeakKeyDictionary({anchor: first})
    return lambda: seen[anchor], lambda value: seen.__setitem__(anchor, value)


def arguments_of_an_exit_function(first: Any) -> Ways:
    box = [first]
    atexit.register(box.clear)
    return lambda: box[0], lambda value: box.__setitem__(0, value)


def cycle(first: Any) -> Ways:
    turning = itertools.cycle([[first]])
    return lambda: next(turning)[0], lambda value: next(turning).__setitem__(0, value)


def iterator_over_a_list(first: Any) -> Ways:
    held = iter([first])

    def read() -> Any:
        nonlocal held
        (value,) = tuple(held)
        held = iter([value])
        return value

    def write(value: Any) -> None:
        nonlocal held
        held = iter([value])

    return read, write


def chained_iterators(first: Any) -> Ways:
    held = itertools.chain([first], ())

    def read() -> Any:
        nonlocal held
        value = next(held)
        held = itertools.chain([value], ())
        return value

    def write(value: Any) -> None:
        nonlocal held
        held = itertools.chain([value], ())

    return read, write


def future(first: Any) -> Ways:
    loop = asyncio.new_event_loop()

    def done(value: Any) -> asyncio.Future[Any]:
        made = loop.create_future()
        made.set_result(value)
        return made

    promise = done(first)
    loop.close()

    def write(value: Any) -> None:
        nonlocal promise
        promise = done(value)

    return lambda: promise.result(), write


FUNCTIONS = table(
    default_argument="past remembered",
    function_attribute="averaged last",
    lru_cache="drawer",
    closure_of_a_list="lagging",
    nonlocal_cell="lagging",
    partial="put slow",
    keywords_of_a_partial="put slow",
    generator_locals="running inside",
    coroutine_locals="coroutine inside out",
    async_generator_locals="running inside",
    thread_subclass="worker behind",
    thread_local="SPACE own",
    context_variable="CURRENT",
    weak_reference_callback="finalize box slow",
    weak_value_dictionary="seen strong inner",
    weak_key_dictionary="seen anchor",
    arguments_of_an_exit_function="box",
    cycle="turning",
    iterator_over_a_list="held",
    chained_iterators="held",
    future="promise",
)(
    default_argument,
    function_attribute,
    lru_cache,
    closure_of_a_list,
    nonlocal_cell,
    partial,
    keywords_of_a_partial,
    generator_locals,
    coroutine_locals,
    async_generator_locals,
    thread_subclass,
    thread_local,
    context_variable,
    weak_reference_callback,
    weak_value_dictionary,
    weak_key_dictionary,
    arguments_of_an_exit_function,
    cycle,
    iterator_over_a_list,
    chained_iterators,
    future,
)
