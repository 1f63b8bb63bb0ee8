"""The page docs/other-tools.md, the catalogue in the hands of other tools: `python -m tests.faults.live.other_tools`.

It needs the extra `resume-peers`, in an environment of its own: pytest loads their plugins wherever they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import torch

import parity
from benchmarks.results import signed
from parity.results import Resumption
from tests.faults.catalog import PLANTED
from tests.faults.live import trainer_numpy, trainer_ravex
from tests.faults.live.checked import check, names_first, variants
from tests.faults.live.driven import Answer, is_named, pytest_torch
from tests.faults.live.entry import Entry

__all__ = ["COMMAND", "PAGE", "given", "render"]

PAGE = Path(__file__).resolve().parents[3] / "docs" / "other-tools.md"
COMMAND = "python -m tests.faults.live.other_tools"

_HEAD = """# The catalogue in the hands of other tools

`{command}` wrote this page, with pytest-torch {pytest_torch} and ravex {ravex}, PyTorch {torch}.

## pytest-torch

`assert_resume_equivalent` runs a training loop that it owns: a setup of model, optimizer, scheduler, scaler and
further objects with a `state_dict`, a step, and functions that save and load. It was given every bug of the
[catalogue](resume-bugs.md) whose trainer has a PyTorch model. To be fair to it, the loops were not ported by hand:
each trainer is driven as it is, saves with its own code at its own time, and everything that it keeps (moving
averages, position in the data, counters, best values, generators) was declared to it. *Named* means that the
component is mentioned anywhere in the message, be it among others; for this suite, that it is the first suspect.
Trainers that draw from the generator of PyTorch alone do not save those of Python and NumPy, so the message of
pytest-torch names generators wherever the run diverges.

| | given | found | named | false alarms on the trainers without a bug |
|---|--:|--:|--:|--:|
| pytest-torch | {given} | {found} | {named} | {alarms} of {clean} |
| parity | {given} | {ours} | {ours_named} | {our_alarms} of {clean} |

{unwritten} bugs live in trainers without a PyTorch model and could not be given to it.

| bug | expected | pytest-torch | parity |
|---|---|---|---|
{rows}

## ravex

ravex judges nothing: it saves and restores what it finds in a loop that has no line for it, and takes the place of
the code that the catalogue plants its bugs in. So the check of this suite, in processes with a real kill at step 17,
was run on a loop under `ravex.train_loop`.

| loop | verdict | what did not come back |
|---|---|---|
{ravex_rows}
"""


def has_model(entry: Entry) -> bool:
    """Return whether a trainer has a PyTorch model, which pytest-torch needs."""
    return entry.train is not trainer_numpy.train


def given() -> list[Entry]:
    """Return the bugs that pytest-torch can be given."""
    return [entry for entry in PLANTED if not entry.policy and has_model(entry)]


def render() -> str:
    """Run everything, and return the page."""
    torch.set_num_threads(1)
    entries = given()
    clean = variants([entry for entry in PLANTED if has_model(entry)])
    theirs = {entry.name: pytest_torch(entry, entry.keywords["fault"]) for entry in entries}
    ours = {entry.name: check(entry) for entry in entries}
    return signed(
        _HEAD.format(
            command=COMMAND,
            pytest_torch=version("pytest-torch"),
            ravex=version("ravex"),
            torch=version("torch").partition("+")[0],
            given=len(entries),
            found=sum(answer.red for answer in theirs.values()),
            named=sum(is_named(entry, theirs[entry.name]) for entry in entries),
            alarms=sum(pytest_torch(entry, "").red for entry in clean),
            clean=len(clean),
            ours=sum(found.verdict == "broken" for found in ours.values()),
            ours_named=sum(names_first(entry, ours[entry.name]) for entry in entries),
            our_alarms=sum(check(entry, "").verdict != "holds" for entry in clean),
            unwritten=sum(not entry.policy for entry in PLANTED) - len(entries),
            rows="\n".join(_row(entry, theirs[entry.name], ours[entry.name]) for entry in entries),
            ravex_rows="\n".join(_ravex_row(text, options) for text, options in _RAVEX.items()),
        ).rstrip("\n")
    )


def _row(entry: Entry, theirs: Answer, ours: Resumption) -> str:
    said = f"found, names {', '.join(theirs.components)}" if theirs.components else "found, names nothing"
    expected = ", ".join(name.rstrip(".") for name in entry.expected)
    mark = "" if not theirs.red or is_named(entry, theirs) else " (another)" if theirs.components else ""
    return f"| `{entry.name}` | {expected} | {said + mark if theirs.red else 'not found'} | {ours.components[0]} |"


_RAVEX: dict[str, dict[str, bool]] = {
    "model with batch norm and dropout, AdamW with two groups, schedule, GradScaler, shuffled loader": {},
    "the same, and the loop asks `ravex.step()` before its first batch": {"asks_first": True},
    "the same as the first, and a moving average and a best value in plain objects": {"keeps": True},
}


def _ravex_row(text: str, options: Mapping[str, bool]) -> str:
    found = parity.resumes(
        trainer_ravex.train, steps=24, stop_at=17, mode="process", scenarios=("kill",), options=options
    )
    lost = [suspect.component for suspect in found.suspects if "at the resume" in suspect.when]
    return f"| {text} | {found.verdict} | {', '.join(dict.fromkeys(lost))} |"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
