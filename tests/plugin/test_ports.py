"""The plugin's checks of two trainers: what they say, keep and report."""

from parity.results import CheckResult, read_result

pytest_plugins = ["pytester"]

PORTS = """
import numpy as np


def train(folder, steps=12, rate=0.1, name="a.npy"):
    weights = np.linspace(-1.0, 1.0, 6).reshape(2, 3)
    begin = 0
    if (folder / name).exists():
        held = np.load(folder / name)
        begin, weights = int(held[0]), held[1:].reshape(2, 3)
    for step in range(begin, steps):
        yield step
        loss = float((weights**2).sum())
        weights = weights - rate * 2 * weights
        if (step + 1) % 4 == 0 and loss:
            np.save(folder / name, np.append(float(step + 1), weights))


def port(folder, steps=12, rate=0.1):
    kernel = np.linspace(-1.0, 1.0, 6).reshape(2, 3).T.copy()
    begin = 0
    if (folder / "b.npy").exists():
        held = np.load(folder / "b.npy")
        begin, kernel = int(held[0]), held[1:].reshape(2, 3).T.copy()
    for step in range(begin, steps):
        yield step
        loss = float((kernel * kernel).sum())
        kernel = kernel - kernel * 2 * rate
        if (step + 1) % 4 == 0 and loss:
            np.save(folder / "b.npy", np.append(float(step + 1), kernel.T))


def wrong(folder, steps=12):
    return port(folder, steps, rate=0.1001)


def convert(source, target):
    np.save(target / "b.npy", np.load(source / "a.npy"))


def forgets(source, target):
    held = np.load(source / "a.npy")
    np.save(target / "b.npy", np.append(held[0], held[1:] * 1.5))


def test_twins(parity):
    found = parity.twins(train, port, steps=12, seeds=1)
    assert found.pairs == 1


def test_handover(parity):
    assert parity.handover(train, port, convert=convert, steps=12, stop_at=6, seeds=1).handovers == (4,)


def test_wrong_port(parity):
    parity.twins(train, wrong, steps=12, seeds=1)


def test_wrong_conversion(parity):
    parity.handover(train, port, convert=forgets, steps=12, stop_at=6, seeds=1)


def test_failed_conversion(parity):
    parity.handover(train, port, convert=lambda source, target: 1 / 0, steps=12, stop_at=6, seeds=1)
"""


def test_verdicts_on_two_trainers_are_kept_and_a_red_one_says_what_differs(pytester):
    pytester.makepyfile(PORTS)
    ran = pytester.runpytest_inprocess("--parity-mode=inline", "--parity-report=report")
    ran.assert_outcomes(passed=2, failed=3)
    ran.stdout.fnmatch_lines(["E *the two do not train alike: *", "E *differs: model.params, loss*"])
    ran.stdout.fnmatch_lines(["E *the handover is broken: *", "E *differs: model.params*"])
    ran.stdout.fnmatch_lines(["E *failed with ZeroDivisionError: division by zero*"])
    assert "parity/checks" not in ran.stdout.str()
    result = read_result(pytester.path / "report" / "check.json")
    assert isinstance(result, CheckResult)
    found = [(record.name, record.verdict, record.criterion) for record in result.records]
    assert found[:4] == [
        ("twins", "holds", "float64"),
        ("handover", "holds", "float64"),
        ("twins", "broken", "float64"),
        ("handover", "broken", "float64"),
    ]
    assert found[4][:2] == ("handover", "crashed")
