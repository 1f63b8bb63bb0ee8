"""Gradients of an embedding that are sparse: they are compared and copied as others are."""

import pytest

import parity

torch = pytest.importorskip("torch")


def train(folder, steps=12, saves_sparse=False):
    """Add up gradients over three steps, and save within them."""
    torch.manual_seed(1)
    table = torch.nn.Embedding(9, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(table.parameters(), 0.05)
    file, first = folder / "state.pt", 0
    if file.exists():
        held = torch.load(file)
        table.load_state_dict(held["table"])
        optimizer.load_state_dict(held["optimizer"])
        table.weight.grad, first = held["grad"], held["step"]
    for step in range(first, steps):
        yield step
        rows = torch.arange(step, step + 5) % 9
        (table(rows) ** 2).sum().backward()
        if step % 3 == 2:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if (step + 1) % 4 == 0 or step + 1 == steps:
            grad = table.weight.grad if saves_sparse else None
            parts = {"table": table.state_dict(), "optimizer": optimizer.state_dict(), "grad": grad}
            torch.save({**parts, "step": step + 1}, file)


def saved(folder, steps=12):
    yield from train(folder, steps, saves_sparse=True)


def test_a_sparse_gradient_that_is_not_saved_is_named():
    found = parity.resumes(train, steps=12, stop_at=9, mode="inline")
    assert (found.verdict, found.suspects[0].path) == ("broken", "table.weight.grad"), found.text()


def test_one_that_is_saved_is_not():
    found = parity.resumes(saved, steps=12, stop_at=9, mode="inline")
    assert found.verdict == "holds", found.text()
