"""State that is lost is found wherever it is kept: red where it reaches something, listed where it does not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import parity
from tests.corpus.expected import listed, named, says_so
from tests.corpus.placed import REACHES, trainer_of
from tests.corpus.places import PLACES
from tests.corpus.proof import differences, run_in_pieces, what_is_left

FRAMEWORKS = ("torch", "numpy")
EVERY = [(place, framework, reach) for place in PLACES for framework in FRAMEWORKS for reach in REACHES]
SOME = [
    (place, FRAMEWORKS[at % 2], reach)
    for at, place in enumerate(PLACES)
    for reach in ((*REACHES[:3], "nothing")[at % 4], "nothing")[: 1 + (at % 4 != 3 and at % 3 == 0)]
]
"""A covering choice: every place once, a third of those that reach something also where they reach nothing."""


def _left(root: Path, framework: str, kills: tuple[int, ...], **options: object) -> dict[str, str]:
    return what_is_left(*run_in_pieces(trainer_of(framework), root / str(len(kills)), kills, **options))


@pytest.fixture(autouse=True)
def clean_environment() -> Iterator[None]:
    """Take out what a place within this process has left in its environment."""
    before = set(os.environ)
    yield
    for name in set(os.environ) - before:
        del os.environ[name]


@pytest.mark.parametrize(
    ("place", "framework", "reach"),
    [pytest.param(*case, marks=[pytest.mark.soak] * (at % 4 != 0)) for at, case in enumerate(SOME)],
)
def test_without_the_tool_the_copy_is_lost_and_what_keeps_it_resumes_exactly(
    place: str, framework: str, reach: str, tmp_path: Path
) -> None:
    for keep in (True, False):
        kept = tmp_path / str(keep)
        through, resumed = (_left(kept, framework, k, place=place, reach=reach, keep=keep) for k in ((), (7,)))
        assert bool(differences(through, resumed)) == (not keep and reach != "nothing")


NOT_LOOKED_FOR = frozenset(
    ("file_outside_the_folder", "temporary_file", "pipe", "hidden_part_of_a_strided_view", "rest_of_a_storage",
     "context_of_an_autograd_node")
)  # fmt: skip
"""Places that docs/your-trainer.md says are not looked for; what they reach is red all the same."""


STATE_BY_KIND = frozenset(("non_persistent_buffer",))
"""Places of state that a resume has to bring back whether this run reads it or not: a module's buffer, such as a
running mean, of the same shape and other values."""


def test_what_is_not_looked_for_is_said_in_the_guide() -> None:
    page = " ".join(Path("docs/your-trainer.md").read_text().split())
    said = page.split("Not looked for: ")[1].split(".")[0]
    kinds = (
        "files outside of the folder",
        "pipes and descriptors",
        "memory of a storage beyond the view",
        "autograd graph",
    )
    assert all(kind in said for kind in kinds)
    assert set(PLACES) >= NOT_LOOKED_FOR


def check(place: str, framework: str, reach: str, *, mode: str = "inline", scenarios: str = "kill") -> None:
    """Check one place and hold its verdict against what is expected."""
    options = {"place": place, "reach": reach}
    found = parity.resumes(
        trainer_of(framework), steps=12, stop_at=7, mode=mode, scenarios=scenarios, options=options
    )
    if reach == "nothing" and place not in STATE_BY_KIND:
        assert found.verdict == "holds", found.text()
        if place in NOT_LOOKED_FOR:
            return
        assert listed(found, PLACES[place].words), found.text()
        assert says_so(found), found.text()
    else:
        assert found.verdict == "broken", found.text()
        assert place in NOT_LOOKED_FOR or named(found, PLACES[place].words), found.text()


@pytest.mark.parametrize(
    ("place", "framework", "reach"),
    [pytest.param(*case, marks=[pytest.mark.soak] * (at % 8 != 0)) for at, case in enumerate(SOME)],
)
def test_what_is_lost_is_red_or_listed(place: str, framework: str, reach: str) -> None:
    check(place, framework, reach)


ONCE_WRONG = (
    ("descriptor", "torch", "training"), ("module_made_on_the_fly", "torch", "nothing"),
    ("environment", "numpy", "training"), ("keys_of_a_dict", "torch", "file"),
    ("plain_attribute_of_a_module", "torch", "nothing"), ("non_persistent_buffer", "torch", "nothing"),
    ("packed_text", "numpy", "return"), ("floats_of_python", "torch", "training"),
    ("gradient_of_a_leaf", "torch", "training"),
)  # fmt: skip
"""Cases outside of the covering choice that were green, unlisted or named otherwise when all were run."""


@pytest.mark.parametrize(("place", "framework", "reach"), ONCE_WRONG)
def test_cases_that_were_wrong_once(place: str, framework: str, reach: str) -> None:
    check(place, framework, reach)


@pytest.mark.parametrize("place", ["closure_of_a_list", "array_array", "sqlite_in_memory", "generator_locals"])
def test_a_copy_that_is_saved_and_loaded_is_never_red(place: str) -> None:
    options = {"place": place, "reach": "file", "keep": True}
    found = parity.resumes(trainer_of("numpy"), steps=12, stop_at=7, mode="inline", scenarios="kill", options=options)
    assert found.verdict == "holds", found.text()


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["inline", "process"])
@pytest.mark.parametrize(("place", "framework", "reach"), EVERY)
def test_every_place_in_every_mode(place: str, framework: str, reach: str, mode: str) -> None:
    check(place, framework, reach, mode=mode, scenarios="all")


@pytest.mark.soak
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("place", PLACES)
def test_every_copy_that_is_saved_and_loaded_is_never_red(place: str, framework: str) -> None:
    options = {"place": place, "reach": "training", "keep": True}
    found = parity.resumes(
        trainer_of(framework), steps=12, stop_at=7, mode="inline", scenarios="all", options=options
    )
    assert found.verdict == "holds", found.text()
