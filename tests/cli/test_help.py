"""Help: every argument is explained, every example parses, every shell gets a script; NO_COLOR: no escape codes."""

import argparse
import os
import pty
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress

import pytest

from parity.cli import COMMANDS, main, make_parser


def parsers(parser=None):
    """Return every parser of the command, by the words that lead to it."""
    parser = parser or make_parser()
    found = {(): parser}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, one in action.choices.items():
                found |= {(name, *words): inner for words, inner in parsers(one).items()}
    return found


@pytest.mark.parametrize("words", parsers(), ids=" ".join)
def test_every_argument_is_explained(words):
    parser = parsers()[words]
    missing = [
        action.dest
        for action in parser._actions
        if not action.help and not isinstance(action, argparse._SubParsersAction)
    ]
    assert not missing


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_examples_that_parse_and_its_exit_codes(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")  # narrower ones break lines
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    for code, meaning in COMMANDS[name].codes.items():
        assert f"  {code}  {meaning}\n" in out
    assert COMMANDS[name].examples
    for example in COMMANDS[name].examples:
        assert f"  {example}\n" in out
        line = example.partition(" #")[0].partition(" >")[0]
        if line.startswith("parity "):
            make_parser().parse_args(shlex.split(line)[1:])


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith("parity ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_script_with_every_command_and_option(shell, tmp_path, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for words, parser in parsers().items():
        for word in words:
            assert word in script
        for action in parser._actions:
            for option in action.option_strings if action.help != argparse.SUPPRESS else ():
                assert option.lstrip("-") in script
    assert "with-parent" not in script, "what is not for people is not completed"
    if found := shutil.which(shell):
        (tmp_path / "script").write_text(script)
        done = subprocess.run([found, "-n", str(tmp_path / "script")], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_bash_completes_commands_options_and_files(tmp_path, capsys):
    assert main(["completion", "bash"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    (tmp_path / "result.json").write_text("{}")

    def completed(*words):
        line = f"""source ./script
            COMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1}
            _shtab_parity; echo "${{COMPREPLY[@]}}" """
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=tmp_path)
        return done.stdout.split()

    assert completed("parity", "comp") == ["compare", "completion"]
    assert "--keep-latest" in completed("parity", "policy", "simulate", "--keep")
    assert completed("parity", "report", "resu") == ["result.json"]


def on_a_terminal(words, home, **variables):
    """Run a command in a terminal of its own, with colours asked for by every means; return what it shows."""
    asked = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLORTERM": "truecolor", "CLICOLOR_FORCE": "1"}
    inherited = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "parity", *words]
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with subprocess.Popen(command, cwd=home, env={**inherited, **asked, **variables}, **streams):
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # Linux's end of file, once the last process has closed its side
            while piece := os.read(ours, 4096):
                shown += piece
    os.close(ours)
    return shown


@pytest.mark.takes_seconds
@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["train", "--help"],
        ["policy", "simulate", "0.5,0.7"],
        ["verify", "."],
        ["train", "--side", "torch", "--spec", "mlp-digits", "--dir", "run", "--steps", "3"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_no_color_means_no_escape_code_on_a_terminal(words, tmp_path):
    shown = on_a_terminal(words, tmp_path, NO_COLOR="1")
    assert shown.strip()
    assert b"\x1b" not in shown


@pytest.mark.takes_seconds
def test_without_no_color_a_terminal_gets_colours(tmp_path):
    assert b"\x1b" in on_a_terminal(["policy", "simulate", "0.5,0.7"], tmp_path)


@pytest.mark.parametrize("words", parsers(), ids=" ".join)
def test_no_line_of_help_is_broken_within_a_word_at_60_columns(words, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    narrow = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    assert [line for line in narrow.splitlines() if len(line) > 60] == []
    assert sorted(narrow.split()) == sorted(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "words", [["chek"], ["path", "x", "bets"], ["train", "--side", "tourch", "--spec", "mlp-digits", "--dir", "x"]]
)
def test_no_error_is_broken_within_a_word_at_60_columns(words, monkeypatch, capsys):
    def lines():
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        with suppress(SystemExit):
            main(words)
        return capsys.readouterr().err.splitlines()

    monkeypatch.setenv("COLUMNS", "60")
    narrow = lines()
    monkeypatch.setenv("COLUMNS", "1000")
    assert max(map(len, narrow)) <= 60
    assert " ".join(narrow).split() == " ".join(lines()).split()


def test_a_command_line_without_a_command_prints_the_help(capsys):
    assert main([]) == 2, "a script whose variable is empty must not read it as success"
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("usage: parity")
    assert all(name in err for name in COMMANDS)


def code_of(words):
    """Return the exit code, whether the parser or the command refuses."""
    try:
        return main(words)
    except SystemExit as stop:
        return stop.code


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["chek"], "check"),
        (["convert", "a", "b", "--to", "orbx"], "orbax"),
        (["train", "--side", "tourch", "--spec", "mlp-digits", "--dir", "x"], "torch"),
        (["train", "--side", "torch", "--spec", "mlp-digit", "--dir", "x"], "mlp-digits"),
        (["check", "resum"], "resume"),
        (["path", "run", "bets"], "best"),
        (["train", "--side", "torch", "--spec", "mlp-digits", "--dir", "x", "--resume", "latets"], "latest"),
    ],
)
def test_a_misspelt_word_names_the_one_that_was_meant(words, meant, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert code_of(words) == 2
    err = capsys.readouterr().err
    assert f"did you mean {meant}" in err
    assert list(tmp_path.iterdir()) == []


def test_torch_is_a_name_of_torch_save():
    parse = make_parser().parse_args
    assert parse(["convert", "a", "b", "--to", "torch"]).to == parse(["convert", "a", "b", "--to", "torch.save"]).to


def test_values_of_arguments_are_completed(tmp_path, capsys):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out

    def values(name):
        (line,) = [line for line in script.splitlines() if line.startswith(f"_shtab_parity_{name}_choices=")]
        return shlex.split(line.partition("(")[2].rstrip(")"))

    assert values("train___side") == ["jax", "torch"]
    assert "mlp-digits" in values("train___spec")
    assert "mlp-digits" in values("check___spec")
    assert values("train___resume") == ["auto", "latest", "best", "never"]
    assert "handover" in values("check_pos_0")
    assert "NAdam" in values("optim_pos_0")
    assert values("path_pos_1") == ["best", "latest"]
