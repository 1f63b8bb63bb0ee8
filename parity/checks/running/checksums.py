"""Checksums of files, in texts beside them and in their own names: they say nothing that the file does not say.

Equal values may be pickled to other bytes, so the checksum of a checkpoint differs where what it holds does not. A
text in the folder that is one, whole or its beginning, stands for what the file holds.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

__all__ = ["signs_of_checksums"]

MOST_BYTES = 64 << 20
"""Largest file of which checksums are made."""
MOST_TEXT = 1 << 20
"""Longest text in which they are looked for."""
_HEX = re.compile(r"(?<![0-9A-Za-z])(?=\d*[a-fA-F])(?:[0-9a-f]{8,128}|[0-9A-F]{8,128})(?![0-9A-Za-z])")
"""Digits alone are a date or a time: with them every folder would have its files digested."""
_HEX_IN_TEXT = re.compile(rf"(?<!\.){_HEX.pattern}")
"""Nor is a fraction one: `0.1234567e-05`."""


def signs_of_checksums(
    folder: Path, names: Iterable[str], held: Callable[[Path], str | None]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return texts that are checksums of files in a folder, to what stands for them; and the files named by theirs.

    Args:
        folder: Folder of a run.
        names: Files in it.
        held: Returns a digest of what a file holds; None of one that is compared by its bytes.

    Returns:
        Texts to signs, and names of files to those that have signs in them.
    """
    there = {name: folder / name for name in sorted(names) if (folder / name).is_file()}
    words = {name: set(_HEX.findall(name)) for name in there}
    wanted: dict[int, set[str]] = defaultdict(set)
    for name, path in there.items():
        for word in words[name] | set(_HEX_IN_TEXT.findall(_text(path))):
            wanted[len(word)].add(word.lower())
    signs: dict[str, str] = {}
    renamed: dict[str, str] = {}
    for name, path in there.items() if wanted else ():
        if path.stat().st_size > MOST_BYTES:
            continue
        sums = _sums(path.read_bytes())
        found = {one[:size] for one in sums for size in wanted if len(one) >= size} & set().union(*wanted.values())
        sign = held(path) if found else None
        if sign is None:
            continue
        own = {word for word in words[name] if word.lower() in found}
        signs |= {form: sign for word in found for form in (word, word.upper())}
        for word in own:
            renamed[name] = renamed.get(name, name).replace(word, sign)
    return signs, renamed


def _text(path: Path) -> str:
    """Return a file as text; empty of one that is none, or is long."""
    try:
        data = path.read_bytes() if path.stat().st_size <= MOST_TEXT else b""
        return data.decode("utf-8") if b"\0" not in data else ""
    except (OSError, UnicodeDecodeError):
        return ""


def _sums(data: bytes) -> list[str]:
    of_words = [f"{one(data):08x}" for one in (zlib.crc32, zlib.adler32)]
    names = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b", "blake2s", "sha3_256")
    return of_words + [hashlib.new(name, data, usedforsecurity=False).hexdigest() for name in names]
