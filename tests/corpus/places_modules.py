"""Places of a process: modules, builtins, the environment, a logger, a decimal context, files that are open."""

from __future__ import annotations

import builtins
import decimal
import logging
import os
import sys
import tempfile
import types
import weakref
from typing import Any

from tests.corpus import elsewhere
from tests.corpus.place import Ways, as_bytes, as_floats, from_bytes, from_floats, table

__all__ = ["MODULES"]

average: Any = None
pair: tuple[Any, ...] = ()


def global_of_this_module(first: Any) -> Ways:
    global average
    average = first

    def write(value: Any) -> None:
        global average
        average = value

    return lambda: average, write


def tuple_in_a_global(first: Any) -> Ways:
    global pair
    pair = (first, 1)

    def write(value: Any) -> None:
        global pair
        pair = (value, 1)

    return lambda: pair[0], write


def global_of_another_module(first: Any) -> Ways:
    elsewhere.smoothed = first

    def write(value: Any) -> None:
        elsewhere.smoothed = value

    return lambda: elsewhere.smoothed, write


def functions_of_another_module(first: Any) -> Ways:
    elsewhere.put(first)
    return elsewhere.get, elsewhere.put


def set_by_setattr_on_a_module(first: Any) -> Ways:
    setattr(elsewhere, "made_late", first)  # noqa: B010

    def write(value: Any) -> None:
        vars(elsewhere)["made_late"] = value

    return lambda: getattr(elsewhere, "made_late"), write  # noqa: B009


def module_made_on_the_fly(first: Any) -> Ways:
    sys.modules["tests_corpus_made"] = types.ModuleType("tests_corpus_made")
    sys.modules["tests_corpus_made"].slow = first  # type: ignore[attr-defined]

    def write(value: Any) -> None:
        import tests_corpus_made

        tests_corpus_made.slow = value

    def read() -> Any:
        import tests_corpus_made

        return tests_corpus_made.slow

    return read, write


def builtin(first: Any) -> Ways:
    builtins.slow_average = first  # type: ignore[attr-defined]

    def write(value: Any) -> None:
        builtins.slow_average = value  # type: ignore[attr-defined]

    return lambda: slow_average, write  # type: ignore[name-defined]  # noqa: F821


def environment(first: Any) -> Ways:
    def write(value: Any) -> None:
        os.environ["SLOW_AVERAGE"] = " ".join(map(repr, as_floats(value)))

    write(first)
    return lambda: from_floats(map(float, os.environ["SLOW_AVERAGE"].split()), first), write


class Last(logging.Filter):
    seen: Any

    def filter(self, record: logging.LogRecord) -> bool:
        return True


def filter_of_a_logger(first: Any) -> Ways:
    logger = logging.getLogger("tests.corpus.quiet")
    logger.filters[:] = [Last()]
    logger.filters[0].seen = first  # type: ignore[union-attr]

    def write(value: Any) -> None:
        logging.getLogger("tests.corpus.quiet").filters[0].seen = value  # type: ignore[union-attr]

    return lambda: logging.getLogger("tests.corpus.quiet").filters[0].seen, write  # type: ignore[union-attr]


def decimal_context(first: Any) -> Ways:
    contexts = [decimal.Context() for _ in first]

    def write(value: Any) -> None:
        for context, number in zip(contexts, as_floats(value), strict=True):
            context.prec = int((number + 8) * 2**40)

    write(first)
    return lambda: from_floats([context.prec / 2**40 - 8 for context in contexts], first), write


def temporary_file(first: Any) -> Ways:
    descriptor, path = tempfile.mkstemp()
    os.unlink(path)
    size = len(first) * 8

    def write(value: Any) -> None:
        os.pwrite(descriptor, as_bytes(value), 0)

    write(first)
    weakref.finalize(write, os.close, descriptor)
    return lambda: from_bytes(os.pread(descriptor, size, 0), first), write


def file_outside_the_folder(first: Any) -> Ways:
    descriptor, path = tempfile.mkstemp()
    os.close(descriptor)

    def write(value: Any) -> None:
        with open(path, "wb") as out:
            out.write(as_bytes(value))

    def read() -> Any:
        with open(path, "rb") as held:
            return from_bytes(held.read(), first)

    write(first)
    weakref.finalize(write, os.unlink, path)
    return read, write


def pipe(first: Any) -> Ways:
    reader, writer = os.pipe()
    os.write(writer, as_bytes(first))

    def read() -> Any:
        content = os.read(reader, 4096)
        os.write(writer, content)
        return from_bytes(content, first)

    def write(value: Any) -> None:
        os.read(reader, 4096)
        os.write(writer, as_bytes(value))

    for end in (reader, writer):
        weakref.finalize(write, os.close, end)
    return read, write


MODULES = table(
    global_of_this_module="average",
    tuple_in_a_global="pair",
    global_of_another_module="smoothed",
    functions_of_another_module="_hidden",
    set_by_setattr_on_a_module="made_late",
    module_made_on_the_fly="tests_corpus_made",
    builtin="slow_average",
    environment="SLOW_AVERAGE environ",
    filter_of_a_logger="quiet Last filters logging",
    decimal_context="contexts",
    temporary_file="descriptor",
    file_outside_the_folder="path out held file",
    pipe="reader writer pipe descriptor",
)(
    global_of_this_module,
    tuple_in_a_global,
    global_of_another_module,
    functions_of_another_module,
    set_by_setattr_on_a_module,
    module_made_on_the_fly,
    builtin,
    environment,
    filter_of_a_logger,
    decimal_context,
    temporary_file,
    file_outside_the_folder,
    pipe,
)
