"""docs/formats.md: formats, fields and classes are those of the code, and its rules are read."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import jax_side
import torch_side
from parity.cli.convert import FORMATS as TARGETS
from parity.convert import CLASSES, ConversionRule, read_rules
from parity.formats import FAMILIES, FORMATS, WRITTEN
from tests.docs import pages
from tests.docs.pages import expect_failure
from tests.docs.sources import codes

PAGE = "docs/formats.md"


def test_the_formats_of_the_page_are_those_that_are_read_and_written() -> None:
    rows = pages.table(PAGE, "format", "what").rows
    assert {codes(row[0])[0] for row in rows} == {one.name for one in FORMATS}
    assert all(row[2] == "yes" for row in rows)
    assert {codes(row[0])[0] for row in rows if row[3] != "no"} == set(TARGETS)


def test_every_format_of_the_list_that_is_written_has_its_writer() -> None:
    sides = {"torch": torch_side.writers(), "jax": jax_side.writers()}
    own = {name: written.format for name, written in WRITTEN.items() if written != "side"}
    assert all(name == writer for name, writer in own.items())
    for family, writers in sides.items():
        listed = {name for name in WRITTEN if name not in own and FAMILIES[name] == family}
        assert listed == {writer.format for writer in writers}


def test_the_forms_of_a_format_are_of_one_family() -> None:
    assert len({(one.name, one.family) for one in FORMATS}) == len(FAMILIES)


def test_the_fields_of_a_rule_are_those_of_the_page() -> None:
    rows = pages.table(PAGE, "field", "value").rows
    assert [codes(row[0])[0] for row in rows] == [
        *(
            "torch",
            "jax",
            "join",
            "stack",
            "add",
            "tie",
            "view",
            "permute",
            "transpose",
            "reshape",
            "scale",
            "cast",
            "split",
        ),
        *("axis", "collection"),
    ]
    assert {codes(row[0])[0] for row in rows} == {field.name for field in fields(ConversionRule)}


def test_the_classes_of_rules_are_those_of_the_page() -> None:
    rows = pages.table(PAGE, "class", "rules").rows
    assert {row[0] for row in rows} == set(CLASSES)
    by_field: dict[str, Any] = {"scale": 2.0, "add": True, "cast": "bfloat16"}
    for name, kind in ((codes(row[1])[0], row[0]) for row in rows if codes(row[1])):
        assert ConversionRule(torch=("a",), jax=("b",), **{name: by_field.pop(name)}).rule_class == kind
    assert not by_field


def test_the_rules_of_the_page_are_read(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", pages.read(PAGE).split("\n## Rules\n")[1], re.DOTALL)
    (tmp_path / "RULES.toml").write_text(text)
    rules = read_rules(tmp_path / "RULES.toml").rules
    assert [rule.how for rule in rules] == ["transposed", "stacked along axis 0", "split [64, 64, 64] along axis 0"]


PLANTS: dict[Any, list[tuple[str, str, str]]] = {
    test_the_formats_of_the_page_are_those_that_are_read_and_written: [
        (PAGE, "| `deepspeed` |", "| `deepspeeds` |"),
        (PAGE, "without DeepSpeed | yes | no |", "without DeepSpeed | yes | yes |"),
    ],
    test_the_fields_of_a_rule_are_those_of_the_page: [
        (PAGE, "| `tie` | true", "| `tied` | true"),
    ],
    test_the_classes_of_rules_are_those_of_the_page: [
        (PAGE, "| merging | `add`", "| merging | `cast`"),
        (PAGE, "| lossy |", "| lossless |"),
    ],
}


@pytest.mark.parametrize(("test", "plant"), [(test, plant) for test, plants in PLANTS.items() for plant in plants])
def test_a_page_that_says_something_else_is_noticed(test: Any, plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expect_failure(test, *plant, monkeypatch)
