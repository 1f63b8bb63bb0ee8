"""Sides that are not the suite's own: checked under any name, found by entry points, never cached unasked."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from parity import sides
from parity.checkpoints import read_seal, verify
from parity.cli import main
from parity.errors import SideError, UnknownNameError
from parity.reference import SuiteRequest, run_checks
from parity.reference.across import TwinPair, check_handover, check_twins
from parity.runs import QUIET, train
from parity.spec import PRECISIONS, RunSpec
from tests.support.foreign import Mine, install
from tests.support.small import small


def pair(first: sides.Side, spec: RunSpec | None = None, name: str = "mine", **options: object) -> TwinPair:
    both = {name: first, "torch": sides.load("torch")}
    return TwinPair(spec or small("mlp-digits", "float32", "steps=10"), both, seeds=1, **options)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_trainer_of_any_name_is_compared_and_handed_over_in_every_precision(precision):
    both = pair(Mine(), small("mlp-digits", precision, "steps=10"))
    records = [check_twins(both), *(check_handover(both, path) for path in (("mine", "torch"), ("torch", "mine")))]
    assert [record.verdict for record in records] == ["holds"] * 3, records
    assert [record.sides for record in records] == [("mine", "torch"), ("mine", "torch"), ("torch", "mine")]
    if precision != "float64":
        assert both.envelope.sides == ("mine", "torch")


@pytest.mark.takes_seconds
def test_the_policy_of_a_trainer_of_any_name_is_checked(tmp_path):
    request = SuiteRequest(checks=("policy",), specs=[], sides={"mine": Mine()}, workdir=tmp_path)
    assert [(r.sides, r.verdict) for r in run_checks(request, lambda line: None)] == [
        (("memory",), "holds"),
        (("mine",), "holds"),
    ]


class Lacking(Mine):
    """A side whose trainer was made for something else."""

    def build(self, spec, directory=None, *, attempt=0):
        return SimpleNamespace(side="mine", plan=spec.plan, step=0)


def test_a_trainer_that_lacks_members_is_refused_with_their_names_and_leaves_no_trace(tmp_path):
    lacking = "side 'mine': its trainer has no identity, spec_hash, steps, evaluate, .*import_state; see"
    with pytest.raises(SideError, match=lacking):
        train(Lacking(), "mine", small("mlp-digits"), tmp_path / "run", observers=QUIET)
    assert not (tmp_path / "run").exists()


@pytest.fixture
def cached(monkeypatch, tmp_path):
    """Return a function that tells how many envelopes have been written to an empty cache."""
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path / "cache"))
    return lambda: len(list(tmp_path.glob("cache/envelopes/*.json")))


@pytest.mark.takes_seconds
def test_an_envelope_of_our_own_sides_is_cached_and_read_back(cached):
    both = {"first": sides.load("torch"), "second": sides.load("torch")}
    spec = small("mlp-digits", "float32", "steps=10")
    widths = [TwinPair(spec, both, seeds=1).envelope.width.tolist() for _ in range(2)]
    assert widths[0] == widths[1]
    assert cached() == 1
    assert TwinPair(spec, both, seeds=1, cache=False).envelope.width.tolist() == widths[0]


@pytest.mark.parametrize("name", ["mine", "jax"])
def test_an_envelope_of_a_side_whose_sources_are_not_known_is_not_cached_whatever_its_name(name, cached):
    assert len(pair(Mine(), name=name).envelope.width) == 10
    assert cached() == 0


@pytest.mark.takes_seconds
def test_an_envelope_is_cached_under_the_sources_that_the_caller_names(cached):
    for sources, envelopes in (("1", 1), ("1", 1), ("2", 2)):
        assert len(pair(Mine(), sources={"mine": sources}).envelope.width) == 10
        assert cached() == envelopes
    assert len(pair(Mine(), sources={"mine": "1"}, cache=False).envelope.width) == 10
    assert cached() == 2


def test_an_installed_side_is_found_by_its_entry_point(tmp_path, monkeypatch):
    assert "mine" not in sides.installed()
    install(tmp_path, monkeypatch, "mine = mine")
    assert sides.installed() == ["jax", "torch", "mine"]
    assert sides.load("mine").build(small("mlp-digits")).side == "mine"
    assert not sides.is_builtin(sides.load("mine"))


def test_an_entry_point_may_name_an_object_of_a_module(tmp_path, monkeypatch):
    code = "from tests.support.foreign import Mine\nside = Mine()\n"
    install(tmp_path, monkeypatch, "mine = mine:side", code=code)
    assert sides.load("mine").topology(small("mlp-digits")) == sides.load("torch").topology(small("mlp-digits"))


def test_an_entry_point_does_not_take_the_name_of_a_built_in_side(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "torch = mine")
    assert sides.is_builtin(sides.load("torch"))
    assert sides.installed() == ["jax", "torch"]


def test_an_unknown_side_is_told_the_built_in_and_the_installed_ones(tmp_path, monkeypatch, capsys):
    install(tmp_path, monkeypatch, "mine = mine\nyours = mine")
    with pytest.raises(UnknownNameError, match=r"unknown side 'theirs'; known: jax, mine, torch, yours$"):
        sides.load("theirs")
    assert main(["check", "resume", "--sides", "theirs"]) == 2
    assert capsys.readouterr().err == "parity: error: unknown side 'theirs'; known: jax, mine, torch, yours\n"


@pytest.mark.parametrize(
    ("entry", "code", "message"),
    [
        ("mine = mine", "raise RuntimeError('first\\nsecond')", "cannot be imported: RuntimeError: first second;"),
        ("mine = mine", "import no_such_module", "cannot be imported: ModuleNotFoundError: No module named"),
        ("mine = mine", "def build(", "cannot be imported: SyntaxError"),
        ("mine = elsewhere", "", "'elsewhere' of the group parity.sides cannot be imported: ModuleNotFoundError"),
        ("mine = mine:side", "", "cannot be imported: AttributeError"),
        ("mine = mine side", "", "cannot be imported: "),
        ("mine = mine", "", "has no function build and no topology; parity.sides.Side needs both"),
        ("mine = mine", "def build(): pass", "has no function topology;"),
    ],
)
def test_a_side_that_cannot_be_imported_or_is_none_is_refused_in_one_line(
    entry, code, message, tmp_path, monkeypatch, capsys
):
    install(tmp_path, monkeypatch, entry, code=code)
    with pytest.raises(SideError, match="side 'mine': entry point") as caught:
        sides.load("mine")
    assert message in str(caught.value)
    assert main(["train", "--side", "mine", "--spec", "mlp-digits", "--dir", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == f"parity: error: {caught.value}\n"
    assert "\n" not in str(caught.value)


def test_a_name_that_two_packages_add_is_refused(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "mine = mine")
    install(tmp_path, monkeypatch, "mine = other", package="other")
    with pytest.raises(SideError, match=r"side 'mine': (mine and other|other and mine) both add a side of this name"):
        sides.load("mine")


def test_a_seal_may_name_any_side(tmp_path, monkeypatch):
    """A side that writes its own seals gives its own name; one that wraps a built-in side keeps the name of that."""
    from tests.support import sealed

    made = sealed.Seal
    monkeypatch.setattr(sealed, "Seal", lambda **fields: made(**{**fields, "side": "mine"}))
    path: Path = sealed.save(tmp_path, 10)
    assert read_seal(path).side == "mine"
    assert verify(path).whole
