"""From system calls to operations: follow descriptors, positions and names through a trace.

Whatever could change the tree and is not understood here is an error: the model of a crash would be wrong, and what
it proves with it.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.crash.calls import Call, Descriptor, TraceError, descriptor_of, read_calls, text_of, vector_of
from tests.crash.operations import MARK, Cut, Entry, Mark, Operation, Operations, Sync, Write

__all__ = ["REFUSED", "TRACED", "parse"]

REFUSED = (
    *("openat2", "pwritev2", "fallocate", "copy_file_range", "sendfile", "splice", "tee", "vmsplice"),
    *("symlink", "symlinkat", "mknod", "mknodat", "setxattr", "fsetxattr", "removexattr", "fremovexattr"),
    *("msync", "sync", "syncfs", "io_submit", "io_uring_setup", "chdir", "fchdir", "chroot", "mount", "pivot_root"),
)
"""Calls that may change files and that no save makes: traced, so that they cannot go unnoticed."""


@dataclass
class _Open:
    """An open file: descriptors that were duplicated share one, and its position."""

    node: int
    path: str
    appends: bool = False
    writes: bool = False
    syncs: bool = False
    """O_SYNC: every write is durable when it returns."""
    position: int = 0


@dataclass
class _Reader:
    """What is known of the tree and the process while the trace is read."""

    root: str
    done: list[Operation] = field(default_factory=list)
    names: dict[int, dict[str, int]] = field(default_factory=lambda: {0: {}})
    sizes: dict[int, int] = field(default_factory=dict)
    open: dict[int, _Open] = field(default_factory=dict)
    begun: dict[int, tuple[_Open | None, int]] = field(default_factory=dict)
    """Thread to the file its call is about, and the number of operations done, both as the call began."""
    threads: set[int] = field(default_factory=set)
    writers: set[int] = field(default_factory=set)
    nodes: int = 0

    def inside(self, path: str) -> str | None:
        """Return a path relative to the root, empty for the root itself, None for one outside."""
        path = os.path.normpath(path)
        if path == self.root:
            return ""
        return path[len(self.root) + 1 :] if path.startswith(self.root + "/") else None

    def resolve(self, arguments: list[str], at: int, *, relative: bool) -> str | None:
        """Return a path argument relative to the root; `relative` when the argument before it is its folder."""
        name = os.fsdecode(text_of(arguments[at]))
        if relative and not name.startswith("/"):
            folder = descriptor_of(arguments[at - 1])
            if not folder.path:
                raise TraceError(f"{name!r} is relative to a folder that strace does not name")
            name = f"{folder.path}/{name}"
        elif not name.startswith("/"):
            raise TraceError(f"{name!r} is relative: the process must use whole paths")
        return self.inside(name)

    def find(self, path: str) -> tuple[int, str, int | None]:
        """Return the folder of a path, its last name, and its node if it has one."""
        *above, name = path.split("/")
        node = 0
        for part in above:
            if part not in self.names.get(node, {}):
                raise TraceError(f"{path!r}: there is no {part!r} as far as the trace tells")
            node = self.names[node][part]
        return node, name, self.names[node].get(name)

    def new(self, *, folder: bool) -> int:
        self.nodes += 1
        if folder:
            self.names[self.nodes] = {}
        else:
            self.sizes[self.nodes] = 0
        return self.nodes

    def enter(self, folder: int, names: dict[str, int | None], what: str) -> None:
        self.done.append(Entry(folder, tuple(names.items()), what))
        for name, node in names.items():
            if node is None:
                self.names[folder].pop(name, None)
            else:
                self.names[folder][name] = node

    def of(self, shown: Descriptor) -> _Open | None:
        """Return the open file of a descriptor, None for one outside of the tree."""
        known = self.open.get(shown.number)
        if shown.path and (self.inside(shown.path) is None) != (known is None):
            raise TraceError(f"descriptor {shown.number} is {shown.path!r}, which does not fit the calls before")
        return known


def parse(lines: Iterable[str], root: str) -> Operations:
    """Read a trace, and keep what happened to the tree below `root`, an absolute real path.

    Raises:
        TraceError: A call that could change the tree is not modelled, or more than one process worked on it.
    """
    reader = _Reader(root.rstrip("/"))
    hexadecimal = "".join(f"\\x{byte:02x}" for byte in os.fsencode(reader.root))
    for begins, call in read_calls(lines):
        concerned = hexadecimal in call.text
        if begins:
            _begin(reader, call, concerned)
            continue
        if not reader.threads:
            reader.threads.add(call.thread)
        if call.name in _FORKS and "CLONE_THREAD" in call.text and call.result is not None:
            reader.threads.add(call.result)
        if call.name in REFUSED and (concerned or call.name in _BLIND) and not call.error:
            raise TraceError(f"line {call.ended}: {call.name} has no place in the model of a crash")
        if call.name == "access" and not concerned:
            _note_mark(reader, call)
        if call.error or call.result is None or not concerned:
            continue
        if call.name not in _MODEL:
            raise TraceError(f"line {call.ended}: {call.name} on the tree has no place in the model of a crash")
        before = len(reader.done)
        _MODEL[call.name](reader, call)
        if len(reader.done) > before:
            reader.writers.add(call.thread)
    if strangers := reader.writers - reader.threads:
        raise TraceError(f"the tree was changed by other processes too: {sorted(strangers)}")
    return Operations(tuple(reader.done), frozenset(reader.names))


def _begin(reader: _Reader, call: Call, concerned: bool) -> None:
    """Note what a call is about while its descriptor still means that; a close takes effect at once."""
    if not concerned or call.name not in _ON_DESCRIPTOR:
        return
    file = reader.of(descriptor_of(call.arguments[0]))
    reader.begun[call.thread] = (file, len(reader.done))
    if call.name == "close":
        reader.open.pop(descriptor_of(call.arguments[0]).number, None)


def _note_mark(reader: _Reader, call: Call) -> None:
    name = os.fsdecode(text_of(call.arguments[0]))
    if name.startswith(MARK):
        reader.done.append(Mark(int(name.removeprefix(MARK))))


def _openat(reader: _Reader, call: Call) -> None:
    relative = call.name == "openat"
    arguments = call.arguments
    path = reader.resolve(arguments, int(relative), relative=relative)
    if path is None:
        return
    flags = set(arguments[1 + relative].split("|")) if call.name != "creat" else {"O_WRONLY", "O_CREAT", "O_TRUNC"}
    if "O_TMPFILE" in flags:
        raise TraceError(f"line {call.ended}: a file without a name has no place in the model of a crash")
    folder, name, node = reader.find(path) if path else (0, "", 0)
    if node is None:
        if "O_CREAT" not in flags:
            raise TraceError(f"{path!r} was opened, and does not exist as far as the trace tells")
        node = reader.new(folder=False)
        reader.enter(folder, {name: node}, f"create {path}")
    elif "O_TRUNC" in flags and reader.sizes.get(node):
        reader.sizes[node] = 0
        reader.done.append(Cut(node, 0, f"empty {path}"))
    writes = bool(flags & {"O_WRONLY", "O_RDWR"})
    syncs = bool(flags & {"O_SYNC", "O_DSYNC"})
    assert call.result is not None
    reader.open[call.result] = _Open(node, path, "O_APPEND" in flags, writes, syncs)


def _write(reader: _Reader, call: Call) -> None:
    file, _ = reader.begun[call.thread]
    if file is None:
        return
    arguments = call.arguments
    data = vector_of(arguments[1]) if "v" in call.name else text_of(arguments[1])
    assert call.result is not None
    data = data[: call.result]
    placed = call.name.startswith("p")
    if placed and file.appends:
        raise TraceError(f"line {call.ended}: Linux appends this {call.name}, wherever it says it writes")
    start = int(arguments[3]) if placed else reader.sizes[file.node] if file.appends else file.position
    if not placed:
        file.position = start + len(data)
    reader.sizes[file.node] = max(reader.sizes[file.node], start + len(data))
    reader.done.append(Write(file.node, start, data, f"write {len(data)} at {start} of {file.path}"))
    if file.syncs:
        reader.done.append(Sync(file.node, len(reader.done), f"written through {file.path}"))


def _lseek(reader: _Reader, call: Call) -> None:
    file, _ = reader.begun[call.thread]
    if file is not None and call.result is not None:
        file.position = call.result


def _truncate(reader: _Reader, call: Call) -> None:
    if call.name == "truncate":
        path = reader.resolve(call.arguments, 0, relative=False)
        node = None if path is None else reader.find(path)[2]
    else:
        file, _ = reader.begun[call.thread]
        node, path = (file.node, file.path) if file else (None, "")
    if node is not None:
        reader.sizes[node] = int(call.arguments[1])
        reader.done.append(Cut(node, reader.sizes[node], f"cut {path} to {reader.sizes[node]}"))


def _fsync(reader: _Reader, call: Call) -> None:
    file, covers = reader.begun[call.thread]
    if file is not None:
        reader.done.append(Sync(file.node, covers, f"sync {file.path or '.'}"))


def _mkdir(reader: _Reader, call: Call) -> None:
    relative = call.name == "mkdirat"
    path = reader.resolve(call.arguments, int(relative), relative=relative)
    if path:  # the root itself is there before anything else
        folder, name, _ = reader.find(path)
        reader.enter(folder, {name: reader.new(folder=True)}, f"mkdir {path}")


def _remove(reader: _Reader, call: Call) -> None:
    relative = call.name == "unlinkat"
    path = reader.resolve(call.arguments, int(relative), relative=relative)
    if path:
        folder, name, _ = reader.find(path)
        reader.enter(folder, {name: None}, f"remove {path}")


def _rename(reader: _Reader, call: Call) -> None:
    relative = call.name != "rename"
    arguments = call.arguments
    if call.name == "renameat2" and arguments[4] not in ("0", "RENAME_NOREPLACE"):
        raise TraceError(f"line {call.ended}: renameat2 with {arguments[4]} has no place in the model of a crash")
    source = reader.resolve(arguments, int(relative), relative=relative)
    target = reader.resolve(arguments, 3 if relative else 1, relative=relative)
    if not source or not target:
        raise TraceError(f"line {call.ended}: a rename into or out of the tree")
    what = f"rename {source} to {target}"
    folder, name, node = reader.find(source)
    other, to, _ = reader.find(target)
    if folder == other:
        reader.enter(folder, {name: None, to: node}, what)
    else:  # two folders, two syncs; until both are done, the file may have either name, both or none
        reader.enter(other, {to: node}, f"{what} (comes)")
        reader.enter(folder, {name: None}, f"{what} (goes)")


def _link(reader: _Reader, call: Call) -> None:
    relative = call.name == "linkat"
    source = reader.resolve(call.arguments, int(relative), relative=relative)
    target = reader.resolve(call.arguments, 3 if relative else 1, relative=relative)
    if source is None or target is None:
        raise TraceError(f"line {call.ended}: a link into or out of the tree")
    folder, name, _ = reader.find(target)
    reader.enter(folder, {name: reader.find(source)[2]}, f"link {source} as {target}")


def _duplicate(reader: _Reader, call: Call) -> None:
    if call.name == "fcntl" and not call.arguments[1].startswith("F_DUPFD"):
        if call.arguments[1] == "F_SETFL":
            raise TraceError(f"line {call.ended}: F_SETFL has no place in the model of a crash")
        return
    file, _ = reader.begun[call.thread]
    assert call.result is not None
    if file is not None:
        reader.open[call.result] = file
    else:
        reader.open.pop(call.result, None)


def _mmap(reader: _Reader, call: Call) -> None:
    arguments = call.arguments
    file = reader.of(descriptor_of(arguments[4]))
    if file is not None and "MAP_SHARED" in arguments[3] and (file.writes or "PROT_WRITE" in arguments[2]):
        raise TraceError(f"line {call.ended}: {file.path} is mapped for writing: those writes are not in the trace")


def _nothing(reader: _Reader, call: Call) -> None:
    del reader, call


_MODEL: dict[str, Callable[[_Reader, Call], None]] = {
    **dict.fromkeys(("open", "openat", "creat"), _openat),
    **dict.fromkeys(("write", "writev", "pwrite64", "pwritev"), _write),
    **dict.fromkeys(("ftruncate", "truncate"), _truncate),
    **dict.fromkeys(("fsync", "fdatasync"), _fsync),
    **dict.fromkeys(("mkdir", "mkdirat"), _mkdir),
    **dict.fromkeys(("unlink", "unlinkat", "rmdir"), _remove),
    **dict.fromkeys(("rename", "renameat", "renameat2"), _rename),
    **dict.fromkeys(("link", "linkat"), _link),
    **dict.fromkeys(("dup", "dup2", "dup3", "fcntl"), _duplicate),
    **dict.fromkeys(("close", "access", "sync_file_range", "execve"), _nothing),
    "lseek": _lseek,
    "mmap": _mmap,
}
_FORKS = ("clone", "clone3", "fork", "vfork")
_BLIND = ("io_submit", "io_uring_setup", "sync")
"""They name no file: seen at all, they are refused."""
_ON_DESCRIPTOR = (
    *("write", "writev", "pwrite64", "pwritev", "ftruncate", "fsync", "fdatasync", "lseek", "close"),
    *("dup", "dup2", "dup3", "fcntl"),
)
TRACED = (*_MODEL, *_FORKS, *REFUSED)
"""What strace is asked for. Reads are not among them (they are a hundred times as much); that they move no position
that a later write starts from is checked by comparing what is replayed with what lies on the disk."""
