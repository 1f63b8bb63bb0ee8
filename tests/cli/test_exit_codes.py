"""Every command with every exit code that it can give, by the table of the page, and one line that says why."""

import argparse
import errno
import json
import re
import shutil
from dataclasses import replace

import pytest
import torch

from parity.cli import COMMANDS, main
from parity.errors import SaveError
from parity.results import EXIT_CODES
from tests.docs import pages
from tests.report.samples import ALL, RESUME, bench_written, benchmark, ratio, written

SMALL = ["--set", "model.hidden=[8]", "--set", "save.every=10", "--set", "validate_every=10"]


def train(run, *extra, steps=20):
    return [
        "train",
        "--side",
        "torch",
        "--spec",
        "mlp-digits",
        "--dir",
        str(run),
        "--steps",
        str(steps),
        *SMALL,
        *extra,
    ]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Return a directory with two runs, results, and things that are none of these."""
    home = tmp_path_factory.mktemp("world")
    assert main(train(home / "a")) == 0
    assert main(train(home / "b", "--set", "seed=1")) == 0
    shutil.copytree(home / "a", home / "same")
    for name, harm in (("damaged", "state.pt"), ("unsealed", "seal.json")):
        shutil.copytree(home / "a", home / name)
        for step in ("10", "20"):
            (home / name / "checkpoints" / step / harm).unlink()
    shutil.copytree(home / "a", home / "bare")
    for entry in ("checkpoints", "steps.jsonl", "validations.jsonl", "latest.json", "best.json"):
        path = home / "bare" / entry
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(home / "bare", home / "bare2")
    (home / "bare" / "checkpoints").mkdir()
    (home / "empty").mkdir()
    (home / "file").write_text("text\n")
    saved = {
        "plain": {"w": torch.ones(4)},
        "other": {"w": torch.zeros(4)},
        "named": {"v": torch.ones(4)},
        "nothing": {},
    }
    for name, state in saved.items():
        torch.save(state, home / f"{name}.pt")
    torch.save({"model": {"w": torch.ones(4)}, "args": argparse.Namespace(lr=1)}, home / "coded.pt")
    for name, text in (("rules", 'torch = "w"'), ("lossy", 'torch = "w"\ncast = "float16"'), ("none", 'torch = "x"')):
        (home / f"{name}.toml").write_text(f'[[rule]]\njax = "v"\n{text}\n')
    (home / "same.toml").write_text('[[rule]]\ntorch = "last.weight"\njax = "last.weight"\n')
    torn = bytearray((home / "plain.pt").read_bytes())
    torn[torn.index(torch.ones(4).numpy().tobytes())] ^= 1
    (home / "torn.pt").write_bytes(torn)
    (home / "a-tool").mkdir()
    (home / "empty2").mkdir()
    for step in (1, 2):
        shutil.copy(home / "plain.pt", home / "a-tool" / f"step_{step}.pt")
    written(home / "holds.json", [RESUME])
    written(home / "broken.json", ALL)
    written(home / "none.json", [])
    for verdict in ("crashed", "inconclusive"):
        written(home / f"{verdict}.json", [_with(verdict)])
    for name, median, bar in (("met", 1.0, 1.02), ("missed", 1.1, 1.02), ("unjudged", 1.0, None)):
        bench_written(home / f"{name}.json", benchmark("x", ratios={"r": ratio(median, bar)}))
    bench_written(home / "nothing.json")
    return home


def _with(verdict):
    return replace(RESUME, verdict=verdict)


SMALL_MODELS = "tests.ports.corpus.small"

CASES = [
    # command, exit code, what it says
    ("verify a", 0, "whole "),
    ("verify damaged", 1, "state.pt: is missing"),
    ("verify nope", 2, "nope does not exist; give a checkpoint, or a directory with several"),
    ("verify file", 2, "file: a file that starts with b'text"),
    ("verify plain.pt", 4, "the CRC-32 of every record fits"),
    ("verify torn.pt", 1, "data/0: does not fit its CRC-32"),
    ("verify a --against b", 2, "--against compares single checkpoints; {}/a holds 2"),
    ("verify a/checkpoints/20 --against b", 2, "is a run; name one of its checkpoints"),
    ("verify a/checkpoints/20 --against nope", 2, "is not a directory; give a checkpoint"),
    ("verify unsealed", 4, "unverified "),
    ("verify bare", 5, "bare holds no checkpoint: nothing was verified"),
    ("verify empty", 5, "empty holds no checkpoint: nothing was verified"),
    ("verify a/checkpoints/20 --against same/checkpoints/20", 0, "every leaf is equal bit for bit"),
    ("verify a/checkpoints/20 --against b/checkpoints/20", 1, "leaves differ"),
    ("verify a/checkpoints/20 --against damaged/checkpoints/20", 1, "is damaged, so it is not compared"),
    ("verify a/checkpoints/20 --against unsealed/checkpoints/20", 4, "is unverified, so it is not compared"),
    ("path a best", 0, "a/checkpoints/"),
    ("path damaged best", 2, "no whole best checkpoint"),
    ("path a 7", 2, "no whole checkpoint of step 7"),
    ("path file best", 2, "file is a file; give the directory of a run or of a manager"),
    ("path empty best", 2, "empty holds no run: it has no spec.toml"),
    ("path a worst", 2, "must be best, latest or a step, got 'worst'"),
    ("export a best out", 0, "verified"),
    ("export a best file", 2, "exists already and is not overwritten"),
    ("export a best file/out", 2, "Not a directory"),
    ("export damaged best out2", 2, "no whole best checkpoint"),
    ("metric same 20 0.5", 0, "step 20: accuracy 0.5"),
    ("metric a 7 0.5", 2, "no whole checkpoint of step 7"),
    ("metric a 20 1.5", 2, "accuracy must be from 0 to 1"),
    ("metric a 20 much", 2, "must be a number, got 'much'"),
    ("policy simulate 0.5,0.7", 0, "2 saves"),
    ("policy simulate a", 0, "2 saves"),
    ("policy simulate file", 2, "a CSV file must be named .csv"),
    ("policy simulate empty", 2, "empty holds no run"),
    ("report holds.json", 0, "verdict: holds"),
    ("report broken.json", 1, "verdict: broken"),
    ("report crashed.json", 3, "verdict: crashed"),
    ("report inconclusive.json", 4, "verdict: inconclusive"),
    ("report none.json", 5, "verdict: empty"),
    ("report met.json", 0, "bars met"),
    ("report missed.json", 1, "bars missed"),
    ("report unjudged.json", 4, "no bars"),
    ("report nothing.json", 5, "No benchmark was run"),
    ("report met.json --html met.html", 0, "wrote {}/met.html (holds)"),
    ("report missed.json --html m.html --markdown m.md", 1, "wrote {}/m.md (broken)"),
    ("report met.json --html nodir/met.html", 2, "is not a directory; create it"),
    ("report file", 2, "expected the JSON of a result"),
    ("report nope", 2, "No such file or directory"),
    ("report", 2, "give either RESULT.json or --compare OLD NEW"),
    ("report --compare holds.json holds.json", 0, "no verdict got worse"),
    ("report --compare holds.json broken.json", 1, "a verdict got worse"),
    ("report --compare broken.json holds.json", 4, "a check of the old result is gone"),
    ("report --compare none.json none.json", 5, "nothing compared"),
    ("report --compare met.json holds.json", 2, "give two results of one kind"),
    ("compare met.json met.json", 0, "0 of 1 ratios got worse"),
    ("compare met.json nothing.json", 5, "nothing compared"),
    ("bench compare met.json met.json", 2, "use `parity compare OLD.json NEW.json`"),
    ("bench run --side torch --mode eager --steps 2 --rounds 1", 0, "mlp-digits torch eager"),
    ("bench run --side jax --mode eager", 2, "jax has scan and loop, not 'eager'"),
    ("bench run --side numpy", 2, "invalid choice: 'numpy'; known: jax, torch"),
    ("bench run --side torch --spec mlp", 2, "unknown preset 'mlp'"),
    ("bench run --side torch --rounds 0", 2, "must be an integer from 1"),
    ("bench run --side torch --output empty", 2, "empty is a directory; name a file in it"),
    ("bench run --side torch -o nodir/x.json", 2, "nodir is not a directory; create it"),
    ("compare a same", 0, "the runs are equal bit for bit"),
    ("compare a b", 1, "first divergence: step 1, batch: "),
    ("compare bare bare2", 5, "nothing compared: the runs share no step"),
    ("compare a/checkpoints/20 same/checkpoints/20", 0, "every leaf is equal bit for bit"),
    ("compare a/checkpoints/20 b/checkpoints/20", 1, "leaves differ"),
    ("compare damaged/checkpoints/20 a/checkpoints/20", 1, "is damaged, so it is not compared"),
    ("compare unsealed/checkpoints/20 a/checkpoints/20", 4, "is unverified, so it is not compared"),
    ("compare holds.json holds.json", 0, "no verdict got worse"),
    ("compare holds.json crashed.json", 1, "a verdict got worse"),
    ("compare none.json none.json", 5, "nothing compared"),
    ("compare met.json missed.json", 1, "1 of 1 ratios got worse"),
    ("compare met.json missed.json --fail-on ratio:50%", 0, "0 of 1 ratios got worse by more than 50 %"),
    ("compare a a/checkpoints/20", 2, "a is a run, {}/a/checkpoints/20 is a checkpoint: give two of one kind"),
    ("compare a holds.json", 2, "is a result of checks: give two of one kind"),
    ("compare holds.json met.json", 2, "is a file of benchmarks: give two of one kind"),
    ("compare a empty", 2, "empty is neither a run, which has a spec.toml, nor a checkpoint: "),
    ("compare plain.pt plain.pt", 0, "1 leaf: 1 equal bit for bit"),
    ("compare plain.pt other.pt", 1, "1 different"),
    ("compare plain.pt named.pt", 5, "nothing compared"),
    ("compare plain.pt plain.pt --fail-on ratio:5%", 2, "--fail-on is for files of benchmarks"),
    ("compare a same --json", 2, "--rtol, --atol, --rules, --bytes, --all and --json are for checkpoints"),
    ("inspect plain.pt", 0, "nothing of a training state by a name that is known (unknown)"),
    ("inspect a", 0, "sealed by the side torch at step 20"),
    ("inspect nothing.pt", 5, "0 arrays"),
    ("inspect nope", 2, "does not exist"),
    ("convert plain.pt empty2/new.safetensors --to safetensors", 0, "sealed"),
    ("convert coded.pt empty2/new2.safetensors --to safetensors", 1, "which only its code could rebuild"),
    ("convert plain.pt other.pt --to safetensors", 2, "exists already"),
    ("convert nothing.pt empty2/new3.pt --to torch.save", 5, "nothing was converted"),
    ("seal nothing.pt", 2, "holds nothing: there is nothing to seal"),
    ("seal other.pt", 0, "sealed "),
    ("seal nope", 2, "does not exist"),
    (f"map --torch {SMALL_MODELS}:Model --jax {SMALL_MODELS}:port", 0, "6 of 6 rows sure"),
    (f"map --torch {SMALL_MODELS}:Model --jax {SMALL_MODELS}:bent", 1, "parts: output 0"),
    (f"map --torch {SMALL_MODELS}:Model", 2, "expected two, as --torch"),
    (f"map --torch {SMALL_MODELS}:Twice --jax {SMALL_MODELS}:twice", 4, "unsure: left.weight"),
    (f"where --torch {SMALL_MODELS}:Model --torch {SMALL_MODELS}:Model", 0, "do not part"),
    (f"where --torch {SMALL_MODELS}:Model --torch {SMALL_MODELS}:Bent --rules same.toml", 1, "the two part"),
    (f"where --jax {SMALL_MODELS}:port --jax none:port", 2, "none:port cannot be imported"),
    (f"where --torch {SMALL_MODELS}:Model --jax {SMALL_MODELS}:port", 4, "no module of one"),
    ("rules check rules.toml plain.pt", 0, "1 parameters: each has one place and leads back"),
    ("rules check lossy.toml plain.pt", 1, "do not lead back"),
    ("rules check none.toml plain.pt", 2, "takes no name of the checkpoint"),
    ("path a-tool latest", 0, "step_2.pt"),
    ("path a-tool best", 2, "which checkpoint is the best is unknown"),
    ("compare a nope", 2, "No such file or directory"),
    ("compare a same --fail-on ratio:5%", 2, "--fail-on is for files of benchmarks"),
    ("demo", 0, "lost: optimizer.momentum"),
    ("demo --write file", 2, "exists already and is not overwritten"),
    ("spec mlp-digits", 0, "name = \"mlp-digits\""),
    ("spec mlp", 2, "unknown preset 'mlp'"),
    ("completion bash", 0, "complete "),
    ("completion csh", 2, "invalid choice: 'csh'"),
    ("check dance", 2, "unknown check 'dance'"),
    ("check policy --report file", 2, "is not a directory; name another one"),
    ("bench", 2, "the following arguments are required: COMMAND"),
    ("policy", 2, "the following arguments are required: COMMAND"),
]  # fmt: skip


def run(words, world, capsys):
    """Run a command, its paths in the world, and return its exit code and all that it printed."""
    entries = {path.name for path in world.iterdir()} | {"nope", "nodir", "out", "out2", "met.html", "m.html", "m.md"}
    line = [str(world / word) if word.split("/")[0] in entries else word for word in words.split()]
    try:
        code = main(line)
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.takes_seconds
@pytest.mark.parametrize(("words", "code", "said"), CASES, ids=[words for words, *_ in CASES])
def test_a_command_exits_with_the_code_of_the_table_and_says_why(words, code, said, world, capsys):
    found, out, err = run(words, world, capsys)
    text = " ".join((out + err).split())
    assert found == code, text
    assert said.replace("{}", str(world)) in text
    assert "Traceback" not in err
    assert not re.search(r"\[Errno|KeyError|TypeError", text)
    if code == 2:
        assert out == "", "what is refused prints no result"
        rows = [line for line in err.splitlines() if not line.startswith((" ", "usage: "))]
        assert len(rows) == 1, "one error; what was found stands below it, indented"
        assert rows[0].startswith("parity")


def test_train_exits_with_each_of_its_codes(tmp_path, monkeypatch, capsys):
    assert main(train(tmp_path / "a", steps=10)) == 0
    assert main(train(tmp_path / "a", steps=10)) == 0
    wild = ["--set", "optimizer.kind=sgd", "--set", "clip_norm=0.0", "--set", "optimizer.lr=1e9"]
    assert main(train(tmp_path / "b", *wild)) == 1
    with pytest.raises(SystemExit) as stop:
        main(train(tmp_path / "a" / "side"))
    assert stop.value.code == 2
    capsys.readouterr()

    def full(*args, **kwargs):
        raise SaveError(10, "No space left on device")

    monkeypatch.setattr("parity.cli.train.train", full)
    assert main(train(tmp_path / "c")) == 3
    assert capsys.readouterr().err == "parity: error: step 10 could not be saved: No space left on device\n"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "x/a"), 3, "use x/a: No space left on device"),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "x/a"), 2, "use x/a: Not a directory; name another"),
        (KeyboardInterrupt(), 130, "SIGINT: stopped"),
    ],
)  # fmt: skip
def test_an_error_of_the_system_is_a_sentence_without_a_number(error, code, said, monkeypatch, capsys):
    def fail(path):
        raise error

    monkeypatch.setattr("parity.cli.report.read_result", fail)
    assert main(["report", "x.json"]) == code
    err = capsys.readouterr().err
    assert said in err
    assert "Errno" not in err


def test_the_demo_exits_with_1_where_a_verdict_is_another_one(monkeypatch, capsys):
    found = type("Found", (), {"verdict": "holds", "text": lambda self: "resumes exactly"})()
    monkeypatch.setattr("parity.checks.resume.resumes", lambda *args, **settings: found)
    assert main(["demo"]) == 1
    assert capsys.readouterr().out.count("resumes exactly") == 2


@pytest.mark.takes_seconds
def test_check_exits_with_the_code_of_its_verdict(monkeypatch, capsys):
    for verdict, code in EXIT_CODES.items():
        monkeypatch.setattr("parity.cli.check.run_checks", lambda *given, v=verdict: [_with(v)])
        assert main(["check", "--spec", "mlp-digits"]) == code
    capsys.readouterr()


def test_native_dropout_cannot_be_handed_over_and_that_is_no_crash(capsys):
    words = ["--steps", "10", "--set", "dropout.generator=native", "--set", "dropout.rate=0.1", *SMALL[:2]]
    assert main(["check", "twins", "handover", "--spec", "mlp-digits", "--json", *words]) == 4
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert {check["verdict"] for check in checks} == {"inconclusive"}
    assert all("use dropout.generator=shared" in check["notes"][0] for check in checks)


def test_the_page_has_the_commands_and_codes_that_are_tested_here():
    table = pages.table("docs/commands.md", "command", "0")
    rows = {name.strip("`"): {code for code, cell in enumerate(cells) if cell} for name, *cells in table.rows}
    tested = {}
    for words, code, _ in CASES:
        if words:
            tested.setdefault(words.split()[0], set()).add(code)
    tested["train"], tested["check"], tested["demo"] = {0, 1, 2, 3}, {0, 1, 2, 3, 4, 5}, {0, 1, 2}
    tested["bench"].add(1)  # tests/cli/test_bench_run.py
    assert {name: codes for name, codes in rows.items() if name in tested} == tested
    assert rows == {name: {*command.codes} for name, command in COMMANDS.items()}, "the help has the same codes"


PLANTS = {
    test_the_page_has_the_commands_and_codes_that_are_tested_here: [
        ("docs/commands.md", "| `metric` | set | | refused |", "| `metric` | set | | |"),
        ("docs/commands.md", "| `spec` | printed |", "| `specs` | printed |"),
        ("docs/commands.md", "| a save failed | | |", "| a save failed | | stopped |"),
    ],
}


@pytest.mark.parametrize(("test", "plant"), [(test, plant) for test, plants in PLANTS.items() for plant in plants])
def test_a_page_with_other_codes_is_noticed(test, plant, monkeypatch):
    pages.expect_failure(test, *plant, monkeypatch)
