"""A forked process against one that an interpreter was started for: what it is given, and how it ends."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from tests.forks import client
from tests.forks.client import ForkingPopen, new_interpreters

PROBE = [sys.executable, "-m", "tests.forks.probe"]


@pytest.fixture(autouse=True)
def no_first(monkeypatch):
    """Fork the first process of a kind too."""
    monkeypatch.setattr(client._servers, "first_is_new", False)


def both(run):
    """Return what comes of a forked process, and of a new interpreter."""
    forked = run()
    with new_interpreters():
        return forked, run()


def told(done: subprocess.CompletedProcess) -> tuple:
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"process_group": 0},
        {"start_new_session": True},
        {"cwd": "/", "env": {"PYTHONPATH": os.getcwd(), "WORD": "ä", "EMPTY": ""}},
    ],
    ids=lambda options: "-".join(options) or "nothing",
)
def test_it_finds_what_a_new_interpreter_finds(options, monkeypatch):
    if "env" in options:
        options["env"]["PATH"] = os.environ["PATH"]

    def run():
        done = subprocess.run([*PROBE, "find", "ä b"], input="given", capture_output=True, text=True, **options)
        assert done.stderr == ""
        return json.loads(done.stdout)

    forked, new = both(run)
    here = forked.pop("same"), new.pop("same")
    assert forked == new
    assert not {*here[0]} & {*here[1]}  # each is itself: its random numbers, the seed of its hashes, its number


def test_two_in_a_row_differ_in_what_is_random():
    done = [json.loads(subprocess.run([*PROBE, "find"], input=b"", capture_output=True).stdout) for _ in range(2)]
    assert not {*done[0]["same"]} & {*done[1]["same"]}


def test_a_descriptor_is_passed_on_by_its_number():
    def run():
        reading, writing = os.pipe()
        done = subprocess.run([*PROBE, "find"], input=b"", capture_output=True, pass_fds=[writing])
        os.close(writing)
        os.close(reading)
        return json.loads(done.stdout)["descriptors"], writing

    (forked, first), (new, second) = both(run)
    assert forked[str(first)] == new[str(second)] == "pipe"
    assert len(forked) == len(new)


@pytest.mark.parametrize("deed", [["exit", "0"], ["exit", "7"], ["interrupt"], ["thread"]])
def test_it_ends_as_a_new_interpreter_does(deed):
    forked, new = both(lambda: told(subprocess.run([*PROBE, *deed], capture_output=True, text=True)))
    assert forked[:2] == new[:2]
    assert forked[2].splitlines()[-1:] == new[2].splitlines()[-1:]


def test_an_error_is_shown_and_ends_it():
    forked, new = both(lambda: told(subprocess.run([*PROBE, "raise"], capture_output=True, text=True)))
    assert forked[:2] == new[:2] == (1, "")
    assert forked[2].splitlines()[-1] == new[2].splitlines()[-1] == "KeyError: 'this was to be expected'"


def test_a_pipe_that_nobody_reads_is_an_error_at_its_end():
    def run():
        reading, writing = os.pipe()
        process = subprocess.Popen([*PROBE, "pipe"], stdin=subprocess.PIPE, stdout=writing, stderr=subprocess.PIPE)
        os.close(writing)
        os.close(reading)
        said = process.communicate(b"")[1].decode()
        return process.returncode, said.splitlines()[-1]

    forked, new = both(run)
    assert forked == new
    assert forked[0] in (1, 120)  # 1 where streams have no buffer
    assert "Broken pipe" in forked[1]


@pytest.mark.parametrize("group", [True, False])
def test_it_is_a_child_of_this_process_and_killed_by_its_number(group):
    options = {"process_group": 0} if group else {}
    with subprocess.Popen([*PROBE, "wait"], stdout=subprocess.PIPE, **options) as process:
        assert isinstance(process, ForkingPopen)
        assert int(process.stdout.readline()) == process.pid
        assert process.poll() is None
        (os.killpg if group else os.kill)(process.pid, signal.SIGKILL)
        assert process.wait(10) == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_several_threads_start_processes_at_once():
    codes = {}

    def run(number):
        codes[number] = subprocess.run([*PROBE, "exit", str(number)], capture_output=True).returncode

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == {number: number for number in range(6)}


@pytest.mark.takes_seconds
def test_a_server_outlives_the_thread_that_started_it(monkeypatch):
    monkeypatch.setattr(client, "_servers", servers := client.Servers())
    servers.first_is_new = False
    thread = threading.Thread(target=subprocess.run, args=([*PROBE, "exit", "0"],))
    thread.start()
    thread.join()
    for code in (1, 2):
        assert subprocess.run([*PROBE, "exit", str(code)]).returncode == code
    servers.close()


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (["true"], {}),
        ([sys.executable, "-I", "-m", "tests.forks.probe", "exit", "0"], {}),
        ([sys.executable, "-c", "import sys; sys.exit('sys' in dir())"], {}),
        ([*PROBE, "exit", "0"], {"preexec_fn": int}),
        ([*PROBE, "exit", "0"], {"env": {"PYTHONPATH": os.getcwd(), "NEW": "1"}}),
    ],
    ids=["another program", "options of Python", "code", "code between", "environment"],
)
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX may have been used in this process
def test_other_processes_are_started_as_always(command, options, monkeypatch):
    monkeypatch.setattr(client._servers, "first_is_new", True)
    monkeypatch.setattr(client.Server, "fork", lambda *_: pytest.fail("it was forked"))
    subprocess.run(command, capture_output=True, **options)


@pytest.mark.new_interpreters
def test_a_mark_asks_for_new_interpreters(monkeypatch):
    monkeypatch.setattr(client.Server, "fork", lambda *_: pytest.fail("it was forked"))
    assert subprocess.run([*PROBE, "exit", "3"], capture_output=True).returncode == 3


def test_what_an_import_prints_is_an_error(monkeypatch):
    monkeypatch.setitem(client.MODULES, "", ("json", "this"))
    with pytest.raises(RuntimeError, match="a new interpreter that imports json, this prints:\nThe Zen"):
        client.Server("", os.environ)


@pytest.mark.takes_seconds
def test_the_servers_that_were_not_used_for_longest_end(monkeypatch):
    monkeypatch.setattr(client, "MOST_SERVERS", 3)
    servers = client.Servers()
    servers.first_is_new = False
    first = [servers.find("", os.environ), servers.find("", os.environ)]
    assert servers.find("", os.environ) in first
    others = [servers.find("", {**os.environ, "WORD": word}) for word in "ab"]
    assert [server.process.poll() for server in (*first, *others)] == [0, 0, None, None]
    servers.close()
    assert [server.process.poll() for server in others] == [0, 0]
