"""The text of a broken resume: components in the order of their suspects, the likeliest first."""

from parity.results import Resumption, Suspect


def suspect(component: str, step: int) -> Suspect:
    return Suspect(
        component=component,
        path=f"{component} at {step}",
        step=step,
        expected="1",
        got="2",
        when="after the resume",
        scenario="kill",
    )


def test_each_component_has_its_first_line_in_the_order_of_the_heading() -> None:
    order = ["rng.torch", "data.position", "optimizer.step", "data.position", "rng.torch", "model.params"]
    suspects = tuple(map(suspect, order, range(6)))
    found = Resumption(name="train", verdict="broken", mode="inline", steps=9, stop_at=4, suspects=suspects)
    lines = found.text().splitlines()
    assert "lost: rng.torch, data.position, optimizer.step, model.params" in lines
    then = lines[lines.index("then:") + 1 :]
    assert [line.strip().split(",")[0] for line in then] == [
        "data.position: data.position at 1",
        "optimizer.step: optimizer.step at 2",
        "model.params: model.params at 5",
    ]
