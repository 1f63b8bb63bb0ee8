"""Hostile pickles in `state.pt`: attempts to run code, to read out of bounds, and to fill the memory."""

import pickle
from collections.abc import Callable
from pathlib import Path

import torch

from tests.hostile.entry import Entry
from tests.hostile.runs import Sandbox

STATE = "state.pt"
OWN = ("version", ".format_version", ".storage_alignment", ".data/serialization_id")
"""Records that PyTorch's writer adds itself."""


def read_archive(path: Path) -> dict[str, bytes]:
    """Return record name to bytes."""
    reader = torch._C.PyTorchFileReader(str(path))
    return {name: reader.get_record(name) for name in reader.get_all_records()}


def write_archive(path: Path, records: dict[str, bytes]) -> None:
    """Write records as `torch.save` does."""
    path.unlink(missing_ok=True)
    writer = torch._C.PyTorchFileWriter(str(path))
    for name, data in records.items():
        if name not in OWN:
            writer.write_record(name, data, len(data))
    writer.write_end_of_file()


def replace_pickle(box: Sandbox, data: bytes) -> None:
    """Put another pickle into the newest checkpoint; its other records stay."""
    path = box.newest / STATE
    write_archive(path, {**read_archive(path), "data.pkl": data})


def text(value: str) -> bytes:
    """Return the opcode that pushes a text."""
    raw = value.encode()
    return b"X" + len(raw).to_bytes(4, "little") + raw


def called(name: str, *args: object) -> bytes:
    """Return a pickle that calls a global, `module attribute`, with arguments."""
    module, _, attribute = name.partition(" ")
    return f"\x80\x02c{module}\n{attribute}\n".encode("latin1") + pickle.dumps(args, 2)[2:-1] + b"R."


def persistent(*parts: object) -> bytes:
    """Return a pickle of one storage, as `torch.save` refers to it."""
    kind = b"ctorch\nFloatStorage\n"
    head, *rest = parts
    return b"\x80\x02(" + text(str(head)) + kind + b"".join(pickle.dumps(p, 2)[2:-1] for p in rest) + b"tQ."


def tensor(
    size: tuple[int, ...], stride: tuple[int, ...], offset: int = 0, key: str = "0", numel: int = 256
) -> bytes:
    """Return a pickle of {"model": tensor} over a storage of the good file (`data/0` holds 1,024 bytes)."""
    storage = persistent("storage", key, "cpu", numel)[2:-1]
    args = b"(" + storage + b"".join(pickle.dumps(p, 2)[2:-1] for p in (offset, size, stride, False))
    return (
        b"\x80\x02}"
        + text("model")
        + b"ctorch._utils\n_rebuild_tensor_v2\n"
        + args
        + b"ccollections\nOrderedDict\n)RtRs."
    )


def nested_hex(depth: int) -> bytes:
    """Return a pickle whose value doubles with every level: 64 bytes times 2 to the depth."""
    data = text("a" * 64)
    out = b"c_codecs\nencode\n(" + data + text("latin1") + b"tR"
    for _ in range(depth):
        out = b"c_codecs\nencode\n(" + out + text("hex") + b"tR"
    return b"\x80\x02" + out + b"."


def laughs(depth: int, wide: int = 10) -> bytes:
    """Return a pickle of lists that hold the list before ten times: 10 to the depth elements if anybody walks it."""
    out = b"\x80\x02]q\x00" + text("ha") + b"a"
    for level in range(1, depth):
        out += b"](" + (b"h" + bytes([level - 1])) * wide + b"eq" + bytes([level])
    return out + b"."


Commands = dict[str, Callable[[str], bytes]]

CODE: Commands = {
    "global-reduce": lambda c: b"cos\nsystem\n(S'" + c.encode() + b"'\ntR.",
    "posix-reduce": lambda c: called("posix system", c),
    "stack-global": lambda c: b"\x80\x04" + text("os") + text("system") + b"\x93(" + text(c) + b"tR.",
    "inst": lambda c: b"(S'" + c.encode() + b"'\nios\nsystem\n.",
    "obj": lambda c: b"(cos\nsystem\nS'" + c.encode() + b"'\no.",
    "newobj": lambda c: b"\x80\x02csubprocess\nPopen\n(" + text(c) + b"t\x81.",
    "newobj-ex": lambda c: b"\x80\x04csubprocess\nPopen\n(" + text(c) + b"t}\x92.",
    "build": lambda c: b"\x80\x02ctorch.nn\nLinear\n)\x81}" + text("__class__") + b"cos\nsystem\nsb.",
    "extension-registry": lambda c: b"\x80\x02\x82\x01.",
    "eval": lambda c: called("builtins eval", f"__import__('os').system({c!r})"),
    "exec": lambda c: called("builtins exec", f"import os; os.system({c!r})"),
    "import": lambda c: called("builtins __import__", "antigravity"),
    "getattr-chain": lambda c: (
        (b"\x80\x02cbuiltins\ngetattr\n(cbuiltins\n__import__\n(" + text("os") + b"tR" + text("system") + b"tR(")
        + text(c)
        + b"tR."
    ),
    "dotted-attribute": lambda c: (
        b"\x80\x04" + text("torch") + text("serialization.os.system") + b"\x93(" + text(c) + b"tR."
    ),
    "runpy": lambda c: called("runpy _run_code", f"import os; os.system({c!r})", {}),
    "torch-load": lambda c: called("torch load", c),
    "torch-hub": lambda c: called("torch.hub load", c, "x"),
    "torch-jit": lambda c: called("torch.jit load", c),
    "torch-compile-gadget": lambda c: called("torch._inductor.codecache _reload_python_module", "k", c),
    "numpy-load": lambda c: called("numpy load", c, None, True),
    "pickle-loads": lambda c: called("_pickle loads", called("posix system", c)),
    "rebuild-type": lambda c: (
        b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n(cos\nsystem\nctorch\nTensor\n(" + text(c) + b"t}tR."
    ),
    "device-tensor-gadget": lambda c: called(
        "torch._utils _rebuild_device_tensor_from_numpy", c, "float32", "cpu", False
    ),
    "functools-partial": lambda c: b"\x80\x02cfunctools\npartial\n(cos\nsystem\n" + text(c) + b"tR)R.",
    "reduce-on-text": lambda c: b"\x80\x02" + text(c) + b")R.",
    "numpy-scalar": lambda c: pickle.dumps(torch.ones(1).numpy()[0], 2),
    "numpy-object-array": lambda c: b"\x80\x02cnumpy\ndtype\n(" + text("O8") + b"tR.",
    "protocol-0": lambda c: pickle.dumps(_Touch(c), 0),
    "protocol-1": lambda c: pickle.dumps(_Touch(c), 1),
    "protocol-2": lambda c: pickle.dumps(_Touch(c), 2),
    "protocol-3": lambda c: pickle.dumps(_Touch(c), 3),
    "protocol-4": lambda c: pickle.dumps(_Touch(c), 4),
    "protocol-5": lambda c: pickle.dumps(_Touch(c), 5),
}
"""Name to a pickle that would run a shell command."""

BROKEN: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "only-stop": lambda: b".",
    "no-stop": lambda: b"\x80\x02}",
    "unknown-opcode": lambda: b"\x80\x02\xff.",
    "protocol-255": lambda: b"\x80\xff}.",
    "pop-of-nothing": lambda: b"\x80\x02000.",
    "mark-missing": lambda: b"\x80\x02t.",
    "memo-of-nothing": lambda: b"\x80\x02h\x07.",
    "memo-index-of-four-billion": lambda: b"\x80\x02}r\xff\xff\xff\xff.",
    "text-longer-than-the-file": lambda: b"\x80\x02X\xff\xff\xff\x7fabc.",
    "bytes-of-an-exabyte": lambda: b"\x80\x04\x8e" + (1 << 60).to_bytes(8, "little") + b"abc.",
    "frame-of-an-exabyte": lambda: b"\x80\x04\x95" + (1 << 60).to_bytes(8, "little") + b"}.",
    "integer-of-a-million-digits": lambda: b"\x80\x02L" + b"9" * 1_000_000 + b"L\n.",
    "integer-of-a-million-bytes": lambda: (
        b"\x80\x02\x8b" + (1_000_000).to_bytes(4, "little") + b"\x7f" * 1_000_000 + b"."
    ),
    "nested-100000-deep": lambda: b"\x80\x02" + b"(" * 100_000 + b"t" * 100_000 + b".",
    "lists-in-lists": lambda: b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".",
    "marks-without-end": lambda: b"\x80\x02" + b"(" * 3_000_000,
    "billion-laughs": lambda: laughs(12),
    "list-that-holds-itself": lambda: b"\x80\x02]q\x00h\x00a.",
    "bytearray-of-a-gigabyte": lambda: called("builtins bytearray", 1 << 30),
    "hex-doubled-24-times": lambda: nested_hex(24),
    "no-dictionary": lambda: pickle.dumps([1, 2, 3], 2),
    "keys-of-another-type": lambda: pickle.dumps({1: 2, (3, 4): 5}, 2),
    "storage-of-an-exabyte": lambda: persistent("storage", "0", "cpu", 1 << 60),
    "storage-longer-than-its-record": lambda: tensor((512,), (1,), numel=512),
    "storage-of-negative-length": lambda: persistent("storage", "0", "cpu", -1),
    "storage-of-a-length-in-text": lambda: persistent("storage", "0", "cpu", "256"),
    "storage-key-of-a-path": lambda: persistent("storage", "../../../canary", "cpu", 256),
    "storage-key-of-no-record": lambda: persistent("storage", "99", "cpu", 256),
    "storage-on-an-unknown-device": lambda: persistent("storage", "0", "evil:0", 256),
    "storage-on-meta": lambda: persistent("storage", "0", "meta", 1 << 50),
    "persistent-id-of-another-kind": lambda: persistent("module", "0", "cpu", 256),
    "persistent-id-too-short": lambda: persistent("storage"),
    "persistent-id-of-text": lambda: b"\x80\x02" + text("storage") + b"Q.",
    "tensor-beyond-its-storage": lambda: tensor((64, 4), (4, 1), offset=128),
    "tensor-of-negative-size": lambda: tensor((-4,), (1,)),
    "tensor-of-negative-stride": lambda: tensor((4,), (-1,)),
    "tensor-of-negative-offset": lambda: tensor((4,), (1,), offset=-8),
    "tensor-of-an-exabyte": lambda: tensor((1 << 60,), (0,)),
    "tensor-whose-size-overflows": lambda: tensor((1 << 40, 1 << 40), (0, 0)),
    "tensor-of-too-few-strides": lambda: tensor((4, 4), (1,)),
    "tensor-of-5000-dimensions": lambda: tensor((1,) * 5000, (0,) * 5000),
}
"""Name to a pickle that is not one, or wants more than there is."""


class _Touch:
    """Pickles as a call of os.system."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[object, ...]:
        import os

        return os.system, (self.command,)


def _attack(make: Callable[[str], bytes]) -> Callable[[Sandbox], None]:
    return lambda box: replace_pickle(box, make(f"touch {box.canary}"))


def _break(make: Callable[[], bytes]) -> Callable[[Sandbox], None]:
    return lambda box: replace_pickle(box, make())


ENTRIES = [
    *(
        Entry(f"pickle-code-{name}", "torch", "refused", r"state\.pt|does not fit this run: \S+: ", _attack(make))
        for name, make in CODE.items()
    ),
    *(
        Entry(f"pickle-{name}", "torch", "refused", r"state\.pt|does not fit this run: \S+: ", _break(make))
        for name, make in BROKEN.items()
    ),
]
