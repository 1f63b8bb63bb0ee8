"""What a run left in its folder, as leaves: every file, decoded where that is possible without running anything.

A file's name decides nothing. It is read as what it is: a checkpoint that an adapter knows, arrays of NumPy, a pickle
(as data), what `marshal` wrote, JSON, text line by line, the members of an archive, the values of a store; of all
else the bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from parity.capture import Leaf, Walk, digest_of
from parity.checks.running.checksums import signs_of_checksums
from parity.checks.running.containers import (
    PACKED,
    is_curve,
    is_database,
    is_one_archive,
    is_tar,
    pieces_of_archives,
    pieces_of_pickles,
    pieces_of_streams,
    read_arrays,
    read_curves,
    read_database,
    read_tar,
)
from parity.checks.running.encoded import with_contents
from parity.checks.running.folder import followed, hidden, list_folder
from parity.checks.running.framed import MOST_FRAMED, read_framed
from parity.checks.running.lines import IN_ORDER, in_order, line_leaves, with_signs
from parity.checks.running.marshalled import is_marshalled, read_marshalled
from parity.checks.running.shelves import read_shelves
from parity.checks.running.unpickled import unpickled
from parity.storage import digest_range

__all__ = ["CURVES", "DIRECTORY", "LINK", "Reader", "contents"]

Reader = Callable[[Path], Any]
"""Returns what a file or directory holds, or None if it is not of its kind."""

LINK = "link"
"""Kind of a link to a directory: what it points to, as it says."""

DIRECTORY = "directory"
"""Kind of a directory with nothing in it."""

MOST_BYTES = 64 << 20
"""Largest file whose content is decoded here; of a larger one that no adapter knows the bytes are compared."""
MANY_IN_FILES = 20_000
"""Elements of a document above which a container of plain values is one leaf: one that differs in equal runs, such as
a time, would hide the others."""

CURVES = "events of TensorBoard"
"""Stands for all event files of a directory, whose names have times and process numbers: they are one curve."""


def contents(
    folder: Path, readers: Iterable[Reader], logs: Collection[str], parts: Iterable[Callable[[Path, Path], bool]] = ()
) -> dict[str, Leaf]:
    """Return the leaves of every file: `name: path in it` to leaf.

    Args:
        folder: Folder of a run.
        readers: Asked in turn for every directory and file; the first that returns something is believed, and one
            that raises is passed over.
        logs: Files that grow while a run goes: they are read line by line, and of lines that such a one holds twice
            the last one counts.
        parts: Each tells of a directory that a reader knows, and a file below it, whether that is part of it: what a
            trainer has put beside a checkpoint counts.
    """
    readers, listed = [*readers], list_folder(folder)
    signs, renamed = signs_of_checksums(folder, listed, partial(_held, readers))
    shown = hidden(folder) | signs
    walk = Walk(shown, many=MANY_IN_FILES)
    read: list[Path] = []
    for root, folders, names in os.walk(folder):  # a checkpoint may be a directory, whose files have random names
        path = Path(root)
        if not folders and not names and path != folder:
            walk.add(f"{path.relative_to(folder)}:", Leaf("scalar", "file", DIRECTORY, ""), lambda: None)
        for link in (path / name for name in sorted(folders) if (path / name).is_symlink()):
            target = with_signs(os.readlink(link), shown)
            walk.add(f"{link.relative_to(folder)}:", Leaf("scalar", "file", LINK, target), lambda: None)
        if path == folder or any(parent in path.parents for parent in read):
            continue
        found = _first(readers, path)
        if found is not None:
            read.append(path)
            walk.root(f"{path.relative_to(folder)}: ", found)
    lines: dict[str, Leaf] = {}
    curves: dict[str, list[Path]] = {}
    for name, (held, files) in read_shelves(folder, listed).items():
        read += [folder / one for one in files]
        walk.root(f"{name}: ", {key: _or_bytes(value) for key, value in held.items()})
    for name in sorted(listed):
        path = folder / name
        within = [parent for parent in read if parent in path.parents]
        if path in read or any(is_part(parent, path) for parent in within for is_part in parts):
            continue
        if path.is_symlink() and (path := followed(path, folder)).is_dir():
            target = with_signs(os.readlink(folder / name), shown)
            walk.add(f"{name}:", Leaf("scalar", "file", LINK, target), lambda: None)
            continue
        if not path.exists():
            target = with_signs(os.readlink(folder / name), shown) if (folder / name).is_symlink() else ""
            walk.add(f"{name}:", Leaf("scalar", "file", "special[l]", target), lambda: None)
            continue
        if not path.is_file():  # to open a pipe is to wait for who writes; a socket cannot be opened
            kind = stat.filemode(path.lstat().st_mode)[0]
            walk.add(f"{name}:", Leaf("scalar", "file", f"special[{kind}]", kind), lambda: None)
            continue
        if is_curve(_head(path)):
            curves.setdefault(f"{name.rpartition('/')[0]}/{CURVES}".lstrip("/"), []).append(path)
            continue
        known = readers if _is_one(path) else ()  # a reader of archives sees one of several that were joined
        found = _first((_read_grown, *known, _read_plain) if name in logs else (*known, _read_plain), path)
        if isinstance(found, _Text):
            here = line_leaves(found.text, shown, log=name in logs)
            lines |= {f"{name}: {key}": leaf for key, leaf in here.items()}
            if name in logs and here:
                lines[f"{name}: {IN_ORDER}"] = in_order(found.text, shown)
            if not here:  # that it is there says something all the same
                walk.add(f"{name}:", Leaf("scalar", "file", "file[0]", ""), lambda: None)
        elif found is None:
            size = path.stat().st_size
            walk.add(f"{name}:", Leaf("scalar", "file", f"file[{size}]", digest_range(path, 0, size)), lambda: None)
        else:
            walk.root(f"{name}: ", found)
    for name, paths in curves.items():
        walk.root(f"{name}: ", read_curves(path.read_bytes() for path in paths))
    leaves = {path.replace(": .", ": ").replace(": [", ": ["): leaf for path, leaf in walk.finish().leaves.items()}
    found = leaves | lines
    return found if not renamed else {_renamed(path, renamed): leaf for path, leaf in found.items()}


def _renamed(path: str, names: Mapping[str, str]) -> str:
    """Return the path of a leaf with the name that stands for that of its file."""
    name, colon, inside = path.partition(":")
    return f"{names.get(name, name)}{colon}{inside}"


def _held(readers: Sequence[Reader], path: Path) -> str | None:
    """Return a digest of what a file holds, nothing of it executed; None where its bytes or its text are compared."""
    found = _first((*(readers if _is_one(path) else ()), _read_plain), path)
    if found is None or isinstance(found, _Text):
        return None
    walk = Walk({}, many=MANY_IN_FILES)
    walk.root("held", found)
    return digest_of(repr(sorted((at, repr(leaf)) for at, leaf in walk.finish().leaves.items())).encode())


class _Text:
    """Marks what was read as text."""

    def __init__(self, text: str) -> None:
        self.text = text


def _first(readers: Iterable[Reader], path: Path) -> Any:
    """Return what the first reader that knows a file or directory finds in it."""
    for reader in readers:
        try:
            found = reader(path)
        except Exception:  # not of this kind, or of classes that are gone: its bytes are compared
            continue
        if found is not None:
            return found
    return None


def _head(path: Path) -> bytes:
    """Return how a file begins; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(64)
    except OSError:
        return b""


def _is_one(path: Path) -> bool:
    """Return whether a file is no archive, or one alone."""
    if _head(path)[:2] != b"PK":
        return True
    try:
        with path.open("rb") as file:
            return is_one_archive(file)
    except (OSError, zipfile.BadZipFile):
        return True


def _read_plain(path: Path) -> Any:
    if path.stat().st_size > MOST_BYTES:
        return None
    return _decoded(path.read_bytes())


def _read_grown(path: Path) -> Any:
    """Return what a file holds that grows by lines or records: one alone is no document of its own."""
    if path.stat().st_size > MOST_BYTES:
        return None
    data = path.read_bytes()
    try:
        if "\0" not in (text := data.decode("utf-8")):
            return _Text(with_contents(text, _decoded))
    except UnicodeDecodeError:
        pass
    found = _decoded(data)
    several = len(pieces_of_pickles(data)) > 1 if data[:1] == b"\x80" else isinstance(found, list)
    is_one = data[:6] == b"\x93NUMPY" or (data[:1] == b"\x80" and found is not None)
    return [found] if is_one and not several else found


def _decoded(data: bytes) -> Any:
    """Return what bytes are, by how they begin; None where that is not known."""
    if data[:6] == b"\x93NUMPY":
        arrays = [_or_bytes(one) if isinstance(one, bytes) else one for one in read_arrays(data)]
        return arrays[0] if len(arrays) == 1 else arrays
    if is_tar(data):
        return _named((name, _or_bytes(inside)) for name, inside in read_tar(data))
    if is_database(data):
        return {name: [tuple(map(_cell, row)) for row in rows] for name, rows in read_database(data).items()}
    if data[:2] == b"PK":
        with suppress(zipfile.BadZipFile):  # of a text, such as a table whose first column has this name
            archives = [one if isinstance(one, bytes) else _named(_members(one)) for one in pieces_of_archives(data)]
            return archives[0] if len(archives) == 1 else archives
    if data[:2] == b"\x1f\x8b":  # whose header has the time
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            inside, rest = stream.read(MOST_BYTES), hashlib.blake2b(digest_size=16)
            while more := stream.read(1 << 20):
                rest.update(more)
        if len(inside) == MOST_BYTES:
            return [_or_bytes(inside), rest.hexdigest()]
        found = _decoded(inside)
        return inside if found is None else found
    if data.startswith(PACKED) and (found := _inflated(data)) is not None:
        return found  # else a text, such as `x^2 + 1`
    if data[:1] == b"\x80" and data[-1:] == b".":
        pieces = pieces_of_pickles(data)
        return unpickled(data) if len(pieces) == 1 else [_or_bytes(one) for one in pieces]
    if is_marshalled(data) and (found := read_marshalled(data)) is not None:
        return found
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return read_framed(data, unpickled) if len(data) <= MOST_FRAMED else None
    text = with_contents(text, _decoded)
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text, object_pairs_hook=_named)
        except json.JSONDecodeError:  # lines of JSON, or text that begins like it
            return _Text(text)
    return _Text(text)


def _inflated(data: bytes) -> Any:
    try:
        inside = [_or_bytes(one) for one in pieces_of_streams(data, MOST_BYTES)]
    except zlib.error:
        return None
    return inside[0] if len(inside) == 1 else inside


def _members(archive: zipfile.ZipFile) -> Iterator[tuple[str, Any]]:
    for item in archive.infolist():
        if item.filename.endswith("/.data/serialization_id"):
            continue  # torch.save's digest of the bytes of the pickle, which may differ where the values do not
        yield item.filename.removesuffix(".npy"), _or_bytes(archive.read(item))


def _named(pairs: Iterable[tuple[str, Any]]) -> Any:
    """Return what names stand for; the pairs as they come where one stands twice, of which the first counts too."""
    each = list(pairs)
    found = dict(each)
    return found if len(found) == len(each) else [list(one) for one in each]


def _cell(value: Any) -> Any:
    """Return what a field of a row holds: bytes may be a pickle, as those of `shelve` are, or an array."""
    return _or_bytes(value) if isinstance(value, bytes) else value


def _or_bytes(data: bytes) -> Any:
    found = _decoded(data)
    return found.text if isinstance(found, _Text) else data if found is None else found
