"""Patterns with stars: which names they take, and what they give on the other side."""

import pytest

from parity.mapping import by_keys, by_text, fill_keys, fill_text


@pytest.mark.parametrize(
    ("pattern", "name", "stars"),
    [
        ("layers.*.weight", "layers.3.weight", ("3",)),
        ("layers.*.weight", "layers.3.norm.weight", None),
        ("layers.*.weight", "layers.3.weights", None),
        ("*.*", "a.b", ("a", "b")),
        ("w*", "w*", ()),
        ("w*", "wide", None),
        ("a.b", "axb", None),
        ("*", "", None),
    ],
)
def test_a_star_between_dots_is_one_key(pattern: str, name: str, stars: tuple[str, ...] | None) -> None:
    found = by_keys(pattern).fullmatch(name)
    assert (None if found is None else found.groups()) == stars


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("encoder.3", ("3", "")),
        ("encoder.3.norm.bias", ("3", ".norm.bias")),
        ("encoder..bias", ("", ".bias")),
        ("encoder.3.a\nb", ("3", ".a\nb")),
        ("encoder", None),
        ("encoders.3", None),
    ],
)
def test_a_name_takes_what_lies_below_it(name: str, groups: tuple[str, ...] | None) -> None:
    found = by_keys("encoder.*", below=True).fullmatch(name)
    assert (None if found is None else found.groups()) == groups


def test_a_star_of_a_path_is_any_text_as_little_as_fits() -> None:
    found = by_text("h.*.w*").fullmatch("h.3.attn.wq.w")
    assert found is not None
    assert found.groups() == ("3.attn", "q.w")
    assert fill_text("layers[*].*.*", found.groups()) == "layers[3.attn].q.w.*"


def test_stars_are_filled_in_order() -> None:
    assert fill_keys("a.*.b.*", ("0", "c", "unused")) == "a.0.b.c"
