"""Three processes without a framework: what they agree on, and how all end when one does."""

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from parity.contract import Place, RunIdentity
from parity.errors import ProcessesError
from parity.runs import Alone, channel, join
from tests.support.ports import free_port

pytestmark = pytest.mark.takes_seconds

ROOT = Path(__file__).resolve().parents[2]
COUNT = 3

PROCESS = """
import json, sys, time
from parity.contract.place import Place
from parity.errors import DivergedError
from parity.runs.peers import leave
from parity.spec import identity_of, preset
from parity.runs.together import join

index, address, act = int(sys.argv[1]), sys.argv[2], sys.argv[3]

class Processes:
    def place(self):
        return Place(address=address, index=index, count=3)
    def start(self, place, spec):
        print("started", flush=True)
        if act == "cannot start":
            raise OSError("no device")
    def stop(self):
        print("stopped", flush=True)

SPEC = preset("mlp-digits")
said = {"index": index}
try:
    facts = {"--resume": "latest" if act == "differs" else "auto"}
    with join(Processes(), lambda: facts, identity_of(SPEC), SPEC, 60.0) as together:
        said["shared"] = together.share({"from": index})
        if act == "wait":
            time.sleep(600)
        if act == "diverge":
            raise DivergedError(7, "loss is nan")
        if act == "stop":
            together._live.stop = 15
        if act == "save":
            together._live.save = True
        for _ in range(2):
            together.agree()
            with together.signals(0) as heard:
                said["heard"] = [heard.stop, heard.save]
    print(json.dumps(said), flush=True)
except Exception as error:
    print(f"parity: error: {error}", file=sys.stderr, flush=True)
    leave(getattr(error, "exit_code", 3))
    sys.exit(getattr(error, "exit_code", 3))
"""


class Three:
    """Three processes, each with something to do; a context manager that leaves none."""

    def __init__(self, *acts):
        self.address = f"localhost:{free_port()}"
        self.processes = [self.start(index, act) for index, act in enumerate(acts)]

    def start(self, index, act):
        command = [sys.executable, "-c", PROCESS, str(index), self.address, act]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=ROOT)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process in self.processes:
            process.kill()
            process.communicate()

    def end(self, index):
        out, err = self.processes[index].communicate(timeout=60)
        return self.processes[index].returncode, out, err


def ends(*acts):
    with Three(*acts) as three:
        return [three.end(index) for index in range(COUNT)]


@pytest.mark.parametrize(("act", "heard"), [("", [None, False]), ("stop", [15, False]), ("save", [None, True])])
def test_all_hear_what_one_heard_and_share_what_the_first_says(act, heard):
    ended = ends("", act, "")
    assert [code for code, _, _ in ended] == [0, 0, 0], ended
    for index, (_, out, err) in enumerate(ended):
        assert err == ""
        started, stopped, said = out.splitlines()
        assert (started, stopped) == ("started", "stopped")
        assert json.loads(said) == {"index": index, "shared": {"from": 0}, "heard": heard}


@pytest.mark.parametrize("failing", range(COUNT))
def test_when_one_fails_all_end_with_its_code_and_name_it_in_one_line(failing):
    ended = ends(*("diverge" if index == failing else "wait" for index in range(COUNT)))
    for index, (code, _, err) in enumerate(ended):
        assert code == 1, ended
        assert len(err.splitlines()) == 1, ended
        named = rf"process {failing} of 3 \(\d+ on .+\) failed: " if index != failing else ""
        assert re.match(rf"parity: error: {named}step 7: loss is nan", err), ended


@pytest.mark.parametrize("killed", range(COUNT))
def test_when_one_is_killed_all_end_and_name_it_in_one_line(killed):
    with Three("wait", "wait", "wait") as three:
        for process in three.processes:
            assert process.stdout.readline() == "started\n"
        three.processes[killed].kill()
        pid = three.processes[killed].pid
        for index in {0, 1, 2} - {killed}:
            code, _, err = three.end(index)
            assert code == 3, err
            assert re.match(rf"parity: error: process {killed} of 3 \({pid} on .+\) is gone: killed", err), err
            assert len(err.splitlines()) == 1, err


def test_a_framework_that_cannot_start_in_one_ends_all():
    ended = ends("wait", "wait", "cannot start")
    assert [code for code, _, _ in ended] == [3, 3, 3], ended
    assert ended[2][2] == "parity: error: no device\n"
    for _, _, err in ended[:2]:
        assert "process 2 of 3" in err
        assert "failed: OSError: no device; this process ends with it" in err


def test_one_that_was_started_differently_is_refused_by_all_before_any_framework_starts():
    ended = ends("", "", "differs")
    line = "parity: error: process 2 of 3 was started differently: --resume is latest there and auto in process 0;"
    for code, out, err in ended:
        assert (code, out) == (2, ""), ended
        assert err.startswith(line), ended


def test_something_else_that_connects_is_left_alone():
    with Three("", "") as three:
        host, port = three.address.split(":")
        for data in (b"", b"GET / HTTP/1.1\r\n\r\n", b"[]\n", b'{"index": 7, "count": 3, "hello": {}}\n'):
            with connect(host, int(port)) as stranger:
                stranger.sendall(data)
        three.processes.append(three.start(2, ""))
        assert [three.end(index)[0] for index in range(COUNT)] == [0, 0, 0]


def connect(host, port):
    for _ in range(600):
        try:
            return socket.create_connection((host, port), timeout=0.1)
        except OSError:
            signal.sigtimedwait([], 0.1)
    raise AssertionError("nobody listens")


def never():
    """Stand for signals of which none comes."""


@pytest.mark.parametrize(("index", "said"), [(0, "of 3 processes, 1, 2 did not come to"), (1, "does not answer at")])
def test_who_waits_too_long_says_for_whom(index, said, monkeypatch):
    monkeypatch.setattr(channel, "JOIN_SECONDS", 0.3)
    place = Place(address=f"localhost:{free_port()}", index=index, count=COUNT)
    with pytest.raises(ProcessesError, match=said):
        (channel.connect if index else channel.gather)(place, {}, never)


def test_an_address_that_is_taken_is_said():
    with socket.create_server(("localhost", 0)) as taken:
        address = f"localhost:{taken.getsockname()[1]}"
        with pytest.raises(ProcessesError, match=f"process 0 cannot listen at {address}: Address already in use"):
            channel.gather(Place(address=address, index=0, count=2), {}, never)


def test_a_process_of_another_number_of_processes_is_refused():
    with Three("") as three:
        host, port = three.address.split(":")
        with connect(host, int(port)) as stranger:
            stranger.sendall(b'{"index": 1, "count": 5, "hello": {}}\n')
            stranger.settimeout(30)
            refused = json.loads(stranger.recv(4096))["refused"]
        assert refused == "this process was started as one of 5, process 0 as one of 3"


def test_without_a_place_a_process_is_alone():
    assert type(join(None, dict, RunIdentity.of({"seed": 0}), None, 60.0)) is Alone
