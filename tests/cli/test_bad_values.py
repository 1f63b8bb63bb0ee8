"""Values, sizes and files out of all bounds: one line before anything is built, never a traceback, never a hang."""

import os
import subprocess
import sys

import pytest

from parity.cli import main

SETTINGS = [
    ("batch=" + "9" * 5000, "batch: must be of type int, got '999"),
    ("batch=0x" + "f" * 5000, "batch: must be at most 2147483647, got an integer of 20000 bits"),
    ("seed=" + "[" * 5000, "seed: must be of type int, got '[[["),
    ("seed=" + "[" * 300 + "]" * 300, "seed: must be of type int, got [[[...]]]"),
    ("optimizer.lr=1" + "0" * 400, "optimizer.lr: must be below 2**128, got an integer of 1329 bits"),
    ("optimizer.lr=1e400", "optimizer.lr: must be finite, got inf"),
    ("metric=0x" + "f" * 5000, "unknown metric 'an integer of 20000 bits'; known: accuracy, loss"),
    ("name.a=1", "unknown field 'name.a'; did you mean name"),
    ("a." * 3000 + "=1", "unknown field '" + "a." * 50 + "...'; known: "),
    ("x" * 3000 + "=1", "unknown field 'xxx"),
    ("x" * 3000, "...: an override reads field.name=value"),
    ("name=" + "x" * 3000, "name: must be at most 200 characters, got 3000"),
    ("steps=100000000000000000000", "steps: must be at most 2147483647, got 100000000000000000000"),
    (
        "model.hidden=[2147483647, 2147483647]",
        "model.hidden: needs at least 549.8 GB for a hidden layer of 64 samples",
    ),
    ("model.classes=2147483647", "model.classes: needs at least 3,324.3 GB for parameters and optimizer state"),
    ("model.inputs=2147483647", "model.inputs: 2147483647, but a sample has 64 features"),
    ("batch=2147483647", "batch: needs at least 1,099.5 GB for a hidden layer of 2147483647 samples"),
    ("data.validation=2147483647", "batch: 64 samples asked for, but 1797 samples - 2147483647 for validation"),
    ("execution.threads=1000000", "execution.threads: must be at most 1024, got 1000000"),
    ("mesh.data=64", "mesh.data: 64 devices asked for; a PyTorch process drives one"),
    ("data.path=/dev/zero", "data.path: is read only with source 'text', not 'digits'; remove it"),
]
TEXT_SETTINGS = [
    ("model.context=2147483647", "model.context: needs at least "),
    ("model.layers=2147483647", "model.layers: must be at most 10000 layers, got 2147483647"),
    ("model.width=2147483644", "model.width: needs at least "),
    ("model.vocabulary=2147483647", "model.vocabulary: needs at least 2,199.0 GB for logits of 8 samples"),
    ("data.path=/dev/zero", "data.path: cannot read /dev/zero as UTF-8 text: /dev/zero is not a regular file"),
    ("data.path=.", "is not a regular file"),
    ("data.path=absent", "data.path: cannot read absent as UTF-8 text: No such file or directory"),
    ("data.path=empty", "model.context: 32, but the text has 0 bytes: not one sample"),
    ("data.path=latin", "data.path: cannot read latin as UTF-8 text: "),
    ("data.path=sparse", "data.path: cannot read sparse as UTF-8 text: is longer than "),
]
BAD_SETTINGS = [("mlp-digits", *row) for row in SETTINGS] + [("gpt-text", *row) for row in TEXT_SETTINGS]


def _refused(command, capsys):
    """Run a command in an empty folder that is to be refused; return its one line."""
    assert main(command) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("parity: error: ")
    assert err.count("\n") == 1
    assert len(err) < 1000, "a list of all fields takes 600"
    assert not os.path.exists("run")
    return err


@pytest.mark.parametrize(
    ("spec", "setting", "message"), BAD_SETTINGS, ids=[f"{a}-{b:.40}" for a, b, _ in BAD_SETTINGS]
)
def test_a_setting_out_of_all_bounds_is_refused_before_anything_is_built(
    spec, setting, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").touch()
    (tmp_path / "latin").write_bytes(b"\xe9" * 10_000)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 42)
    command = ["train", "--side", "torch", "--spec", spec, "--dir", "run", "--steps", "2", "--set", setting]
    assert message in _refused(command, capsys)


MODEL = b'\n[model]\nkind = "mlp"\n'
SPECS = {
    "empty": (b"", "name: is required"),
    "binary": (bytes(range(256)), "cannot read spec.toml: 'utf-8' codec can't decode byte 0x80"),
    "zeros": (bytes(100), "spec: not valid TOML: Invalid statement"),
    "10 MB": (b"# comment\n" * 1_000_000, "spec: cannot read spec.toml: is longer than 1,048,576 bytes"),
    "a dotted name": (b"name." + b"a." * 400_000 + b"a = 1", "line 1 has 400001 dots; at most 100 fit in one line"),
    "deep lists": (b"a = " + b"[" * 100_000, "spec: not valid TOML: nested too deeply"),
    "deep tables": (b"name = " + b"{a = " * 60 + b"1" + b"}" * 60 + MODEL, "name: must be of type str, got {'a': "),
    "a long name": (b"x" * 100_000 + b" = 1", "unknown field 'xxx"),
    "5,000 digits": (b'name = "x"\nbatch = ' + b"9" * 5000 + MODEL, "spec: not valid TOML: Exceeds the limit"),
    "5,000 hex digits": (b'name = "x"\nclip_norm = 0x' + b"f" * 5000 + MODEL, "clip_norm: must be below 2**128"),
    "200,000 layers": (
        b'name = "x"' + MODEL + b"hidden = [" + b"1," * 200_000 + b"]",
        "at most 10000 layers, got 20",
    ),
    "a date": (b"name = 1979-05-27" + MODEL, "name: must be of type str, got datetime.date(1979, 5, 27)"),
}


@pytest.mark.takes_seconds("200,000 layers")
@pytest.mark.parametrize("name", SPECS)
def test_a_file_that_is_no_spec_is_refused_in_one_line(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    content, message = SPECS[name]
    (tmp_path / "spec.toml").write_bytes(content)
    assert message in _refused(["train", "--side", "torch", "--spec", "spec.toml", "--dir", "run"], capsys)


def test_a_link_to_a_spec_is_a_spec_and_one_to_nothing_is_not(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.toml").write_bytes(b'name = "x"\nbatch = 0' + MODEL)
    (tmp_path / "link.toml").symlink_to("spec.toml")
    (tmp_path / "loop.toml").symlink_to("loop.toml")
    command = ["train", "--side", "torch", "--dir", "run", "--spec"]
    assert "batch: must be above 0, got 0" in _refused([*command, "link.toml"], capsys)
    assert "cannot read loop.toml: Too many levels of symbolic links" in _refused([*command, "loop.toml"], capsys)


@pytest.mark.takes_seconds
@pytest.mark.parametrize(
    "command",
    [
        ["train", "--side", "torch", "--dir", "run", "--spec", "/dev/zero"],
        ["train", "--side", "torch", "--dir", "run", "--spec", "./pipe.toml"],
        ["train", "--side", "torch", "--dir", "run", "--spec", "zero.toml"],
        ["train", "--side", "torch", "--dir", "run", "--spec", "gpt-text", "--set", "data.path=pipe.toml"],
        [
            "train",
            "--side",
            "jax",
            "--dir",
            "run",
            "--spec",
            "mlp-digits",
            "--set",
            "batch=512",
            "--set",
            "mesh.data=512",
        ],
        ["check", "--spec", "/dev/zero"],
        ["verify", "/dev/zero"],
        ["verify", "pipe.toml"],
        ["report", "/dev/zero"],
        ["report", "pipe.toml"],
        ["report", "pipe.toml", "--html", "pipe.toml"],
        ["compare", "/dev/zero", "pipe.toml"],
        ["bench", "run", "--side", "torch", "--spec", "/dev/zero"],
        ["policy", "simulate", "/dev/zero"],
        ["policy", "simulate", "pipe.toml"],
    ],
    ids=" ".join,
)
def test_what_never_ends_is_neither_read_nor_waited_for(command, tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    done = subprocess.run(
        ["sh", "-c", 'ulimit -v 16000000; exec "$@"', "sh", sys.executable, "-m", "parity", *command],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "parity" in done.stderr.splitlines()[-1]
    assert "error: " in done.stderr.splitlines()[-1]
    assert {entry.name for entry in tmp_path.iterdir()} == {"pipe.toml", "zero.toml"}


NUMBERS = [
    (["train", "--deadline", value], "--deadline: must be above 0 and at most ")
    for value in ("nan", "inf", "-1", "0", "1e300", "soon")
] + [
    ([*command, value], "must be an integer from ")
    for command in (
        ["train", "--steps"],
        ["train", "--pause-at"],
        ["train", "--hold-at"],
        ["check", "--kill-at"],
        ["policy", "simulate", "0.5", "--every"],
        ["policy", "simulate", "0.5", "--keep-best"],
        ["path", "run"],
        ["metric", "run"],
    )
    for value in (str(2**31), "9" * 5000)
]  # fmt: skip


@pytest.mark.parametrize(("words", "message"), NUMBERS, ids=[" ".join(words)[:60] for words, _ in NUMBERS])
def test_a_number_that_cannot_be_is_usage(words, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert message in last
    assert len(last) < 200
