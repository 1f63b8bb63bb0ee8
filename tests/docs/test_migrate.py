"""The page on carrying a model over: its commands run, and print what the page shows but for the last digits."""

import inspect
import re
import shlex
import sys
from collections.abc import Callable

import jax
import pytest
import torch

import parity
from parity.checks.proving import NAMES, STAGES
from parity.cli import COMMANDS, main
from parity.results import EXIT_CODES
from tests.docs import pages
from tests.docs.pages import ROOT, expect_failure
from tests.ports.five import table as five

PAGE = "docs/migrate.md"

EXAMPLES = ("migrate_torch", "migrate_nnx", "trainer_torch", "trainer_nnx", "port_torch", "port_optax")


def shown(name: str) -> str:
    """Return a block of the page, without the fence."""
    text = pages.read(PAGE).split(f"<!-- {name}:begin -->")[1].split(f"<!-- {name}:end -->")[0]
    return "\n".join(line for line in text.strip().splitlines() if not line.startswith("```"))


def rounded(text: str) -> str:
    """Return a text with every float cut to what any processor gives, and rounding of any size as one word."""
    text = re.sub(r"\b\d\.\d{1,2}e-1[3-7]\b|\b0\.0e\+00\b", "rounding", text)
    return re.sub(r"-?\d+\.(\d{4})\d{4,}", r"0.\1", text).strip()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in EXAMPLES:
        (tmp_path / f"{name}.py").write_text((ROOT / "docs" / "examples" / f"{name}.py").read_text())
        sys.modules.pop(name, None)
    yield tmp_path
    for name in EXAMPLES:
        sys.modules.pop(name, None)


def run(command: str, capsys) -> tuple[int, str]:
    code = main(shlex.split(command)[1:])
    return code, capsys.readouterr().out


def test_the_exit_codes_of_the_page_are_those_of_the_verdicts():
    rows = {cells[0]: cells[1] for cells in pages.table(PAGE, "verdict", "exit code").rows}
    assert rows == {word: str(EXIT_CODES[word]) for word in ("holds", "broken", "inconclusive")}
    assert {*map(int, rows.values())} | {2} == {*COMMANDS["map"].codes}


@pytest.mark.takes_seconds
def test_the_commands_of_the_page_print_what_it_shows(folder, capsys):
    commands = re.findall(r"^parity (?:map|where|convert) (?!.*nano_).*$", pages.read(PAGE), re.MULTILINE)
    wrong, norm, gelu, right, convert, *of_the_five = commands
    assert len(of_the_five) == 2, "these are run by tests/ports/five"
    assert run(wrong, capsys)[0] == 1
    for command, name in ((norm, "norm"), (gelu, "gelu")):
        code, out = run(command, capsys)
        assert (code, rounded(out)) == (1, rounded(shown(name)))
    sys.path.insert(0, str(folder))
    try:
        from migrate_torch import Model
    finally:
        sys.path.remove(str(folder))
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.arange(8)[None]).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "last.pt")
    code, out = run(right, capsys)
    assert (code, rounded(out)) == (0, rounded(shown("right")))
    assert run(convert, capsys)[0] == 0
    assert (folder / "run").is_dir()


def test_the_tables_of_the_five_models_are_those_of_the_record():
    text, missed = five.tables(five.read_record(five.RECORD))
    assert missed == []
    begin, end = five.MARKS
    assert pages.read(PAGE).split(begin)[1].split(end)[0].strip() == text


@pytest.mark.parametrize(
    ("kind", "name", "word", "value"),
    [("carried", "t5", "curve", 2e-10), ("carried", "gpt2", "floor", 2e-11), ("carried", "vit", "proof", "broken"),
     ("carried", "bert", "back", float("nan")), ("variants", "llama, fused", "wrong", 1),
     ("variants", "llama, fused", "right", 14)],
)  # fmt: skip
def test_a_bar_that_is_not_reached_is_noticed(kind, name, word, value):
    record = five.read_record(five.RECORD)
    record[kind][name][word] = value
    assert len(five.tables(record)[1]) == 1


def test_the_names_of_the_page_are_those_that_a_port_is_asked_for():
    rows = [cells[0].strip("`").partition("(")[0] for cells in pages.table(PAGE, "name", "what it is").rows]
    assert rows == list(NAMES)


def test_the_stages_of_the_page_are_those_of_a_proof():
    rows = [cells[0] for cells in pages.table(PAGE, "stage", "what is compared, in float64").rows]
    assert rows == list(STAGES)


def sized(text: str) -> str:
    """Return a text of a port without what the first draws of the models decide: which leaves part most."""
    return re.sub(r"\d+ leaves part, .*", "leaves part", rounded(text))


@pytest.mark.takes_seconds
def test_the_port_of_the_page_parts_at_the_clip_and_is_named(folder, capsys):
    wrong, _ = re.findall(r"^parity port .*$", pages.read(PAGE), re.MULTILINE)
    code, out = run(wrong, capsys)
    assert (code, sized(out)) == (1, sized(shown("clip")))


@pytest.mark.soak
def test_the_port_of_the_page_that_was_put_right_holds(folder, capsys):
    _, right = re.findall(r"^parity port .*$", pages.read(PAGE), re.MULTILINE)
    code, out = run(right, capsys)
    assert (code, sized(out)) == (0, sized(shown("equal")))


@pytest.mark.takes_seconds
def test_the_handover_of_the_page_prints_what_it_shows(folder, capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    from port_torch import train

    (folder / "run").mkdir()
    for _ in train(folder / "run", 25):
        pass
    (folder / "run" / "state.pt").rename(folder / "state.pt")
    [command] = re.findall(r"^parity handover (?!.*nano_).*$", pages.read(PAGE), re.MULTILINE)
    before = jax.config.jax_enable_x64
    try:
        code, out = run(command, capsys)
    finally:
        jax.config.update("jax_enable_x64", before)  # the port sets it for its process
    assert (code, shared(out)) == (0, shared(shown("handover")))


def shared(text: str) -> str:
    """Return a text with the shares of what passes as words."""
    return re.sub(r"\b0\.\d+ of what", "a share of what", rounded(text))


def test_the_batches_of_the_page_are_those_of_the_loader():
    [block] = re.findall(r"```python\n(.*?)\n```", pages.read(PAGE), re.DOTALL)
    names: dict[str, object] = {}
    exec(block, names)
    data = torch.utils.data.TensorDataset(torch.arange(48))
    loader = torch.utils.data.DataLoader(data, 8, shuffle=True, generator=torch.Generator().manual_seed(1))
    batches = [batch[0].tolist() for _ in range(3) for batch in loader]
    assert [batch.tolist() for batch in names["reader"]] == batches[7:]  # type: ignore[attr-defined]


def test_the_orders_of_the_page_are_there():
    rows = pages.table(PAGE, "the loader", "its order").rows
    taken = set(inspect.signature(parity.LoaderOrder).parameters)
    taken |= set(inspect.signature(parity.DistributedOrder).parameters)
    wanted = r"\b(given|sampled|replacement|num_samples|replicas)\b"
    words = [word for cells in rows for word in re.findall(wanted, cells[1])]
    assert {*words} == {"given", "sampled", "replacement", "num_samples", "replicas"} <= taken
    named = {name for cells in rows for name in re.findall(r"`(\w+)\(", cells[1])}
    assert named == {"LoaderOrder", "DistributedOrder"}
    assert named <= {*parity.__all__}


PLANTS: dict[Callable[[], None], list[tuple[str, str, str]]] = {
    test_the_exit_codes_of_the_page_are_those_of_the_verdicts: [
        (PAGE, "| inconclusive | 4 |", "| inconclusive | 5 |"),
    ],
    test_the_tables_of_the_five_models_are_those_of_the_record: [
        (PAGE, "| Llama, fused | 15 | 15 | 0 |", "| Llama, fused | 15 | 14 | 0 |"),
    ],
    test_the_names_of_the_page_are_those_that_a_port_is_asked_for: [
        (PAGE, "| `start(model)` |", "| `begin(model)` |"),
    ],
    test_the_stages_of_the_page_are_those_of_a_proof: [
        (PAGE, "| gradients | of", "| slopes | of"),
    ],
    test_the_orders_of_the_page_are_there: [
        (PAGE, "| `given=False`, from", "| `shared=True`, from"),
        (PAGE, "| `DistributedOrder(size", "| `RankOrder(size"),
    ],
}
"""What the page might say instead: by the test that must notice, the page, its words and others."""


@pytest.mark.parametrize(("claim", "plant"), [(claim, plant) for claim, some in PLANTS.items() for plant in some])
def test_a_page_that_says_something_else_is_noticed(claim, plant, monkeypatch):
    expect_failure(claim, *plant, monkeypatch)
