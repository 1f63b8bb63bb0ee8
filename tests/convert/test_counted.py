"""What `inspect` counts in a model: parameters, buffers, and names that are tied."""

import json
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest
import torch

from parity.cli.main import main
from parity.convert import ParameterCounts, inspect_source, open_any


class Tied(torch.nn.Module):
    """An embedding that is the head's weight, and a normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(5, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.head = torch.nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight


def counts(path: Path) -> ParameterCounts:
    found = next(group.counts for group in inspect_source(open_any(path)).groups if group.component == "parameters")
    assert found is not None
    return found


def test_buffers_are_told_apart_and_tied_names_counted_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Tied()
    torch.save({"model": model.state_dict(), "step": 1}, tmp_path / "a.pt")
    found = counts(tmp_path / "a.pt")
    assert (found.parameters, found.elements) == (3, sum(p.numel() for p in model.parameters()))
    assert (found.buffers, found.buffer_elements) == (3, sum(b.numel() for b in model.buffers()))
    assert found.tied == ("model.head.weight",)
    assert main(["inspect", str(tmp_path / "a.pt")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "3 parameters of 28 elements; 3 buffers of 9 elements (inferred from their names and types)" in said
    assert "further names of one storage (read): model.head.weight" in said
    assert main(["inspect", "--json", str(tmp_path / "a.pt")]) == 0
    group = json.loads(capsys.readouterr().out)["groups"][0]
    assert (group["arrays"], group["elements"], group["nbytes"]) == (7, 37, 4 * 36 + 8)


def test_a_collection_of_the_file_decides_what_is_a_buffer(tmp_path: Path) -> None:
    tree = {"params": {"w": np.ones(6)}, "batch_stats": {"norm": {"mean": np.ones(2), "var": np.ones(2)}}}
    ocp.PyTreeCheckpointer().save(tmp_path / "o", tree)
    found = counts(tmp_path / "o")
    assert (found.parameters, found.elements, found.buffers, found.buffer_elements) == (1, 6, 2, 4)
    assert found.evidence == "read: their collection says so"


def test_a_model_without_either_has_no_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"model": torch.nn.Linear(2, 3).state_dict()}, tmp_path / "a.pt")
    assert main(["inspect", str(tmp_path / "a.pt")]) == 0
    assert "buffer" not in capsys.readouterr().out
