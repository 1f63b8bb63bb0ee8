"""The mesh of a run: what it divides, what is refused with which arithmetic, and the table of logical axes."""

import json
import math
import re

import pytest

from parity import sides
from parity.cli import main
from parity.errors import SpecError
from parity.runs.launching import variables
from parity.spec import AXES, MESH_AXES, MeshSpec, fit_mesh, identity_of, load, override, preset, split_axes, to_toml
from parity.twins import Layout, table

WHOLE = {"classes", "outputs", "context", "image", "height", "width"}

REFUSED = [
    (
        "mlp-digits",
        ["mesh.data=3"],
        "mesh.data: micro-batch of 64 / 1 = 64 samples over 3 devices leaves 1",
        "data = 4",
    ),
    (
        "mlp-digits",
        ["mesh.data=3", "mesh.fsdp=2"],
        "mesh.data: micro-batch of 64 / 1 = 64 samples over 3 x 2 = 6 devices leaves 4",
        "data = 4",
    ),
    ("gpt-text", ["mesh.fsdp=16"], "mesh.fsdp: micro-batch of 16 / 2 = 8 samples over 16 devices", "fsdp = 8"),
    (
        "mlp-digits",
        ["mesh.fsdp=3"],
        "mesh.fsdp: axis 'features' of layers.0.weight, 64 wide, over 3 devices",
        "fsdp = 4",
    ),
    ("mlp-digits", ["mesh.model=3"], "mesh.model: axis 'hidden' of layers.0.weight, 128 wide, over 3", "model = 4"),
    ("gpt-text", ["mesh.model=8"], "mesh.model: 4 attention heads over 8 devices leaves 4", "model = 4"),
    (
        "gpt-text",
        ["model.vocabulary=257", "mesh.model=2"],
        "axis 'vocabulary' of tokens.weight, 257 wide",
        "model = 1",
    ),
    ("cnn-digits", ["mesh.model=16"], "mesh.model: axis 'channels' of convs.0.weight, 8 wide", "model = 8"),
    ("linear-regression", ["mesh.model=2"], "nothing of a model of kind 'linear' is split along it", "model = 1"),
    (
        "mlp-digits",
        ["mesh.data=2", "mesh.model=2", "mesh.processes=3"],
        "mesh.processes: 2 x 2 = 4 devices over 3 processes leaves 1",
        "processes = 4",
    ),
]


@pytest.mark.parametrize(("name", "overrides", "problem", "nearest"), REFUSED)
def test_a_mesh_that_does_not_divide_is_refused_with_the_arithmetic_and_the_nearest(
    name, overrides, problem, nearest
):
    with pytest.raises(SpecError, match=r"; nearest: mesh\.") as caught:
        override(preset(name), overrides)
    message = str(caught.value)
    assert problem in message
    assert message.endswith(f"; nearest: mesh.{nearest}")


@pytest.mark.parametrize("data", [1, 3, 5, 7, 12, 100])
@pytest.mark.parametrize("fsdp", [1, 2, 3, 48])
@pytest.mark.parametrize("model", [1, 3, 4, 9])
def test_the_nearest_mesh_works(data, fsdp, model):
    asked = [f"mesh.data={data}", f"mesh.fsdp={fsdp}", f"mesh.model={model}"]
    try:
        spec = override(preset("gpt-text"), asked)
    except SpecError as error:
        nearest = str(error).partition("; nearest: ")[2].replace(" = ", "=").split(", ")
        spec = override(preset("gpt-text"), [*asked, *nearest])
    assert spec.mesh.devices == math.prod(spec.mesh.sizes.values())


def test_more_devices_than_an_integer_are_refused():
    with pytest.raises(SpecError, match=r"mesh: must be at most 2147483647 devices, got 2147483647 x 2 = 4294967294"):
        MeshSpec(data=2**31 - 1, fsdp=2)


def test_texts_and_identities_of_before_stay():
    spec = preset("mlp-digits")
    assert to_toml(spec).endswith("[mesh]\ndata = 1\n")
    split = load("mlp-digits", None, ["mesh.data=2", "mesh.fsdp=2", "mesh.model=2", "mesh.processes=4"])
    assert to_toml(split).endswith("[mesh]\ndata = 2\nfsdp = 2\nmodel = 2\nprocesses = 4\n")
    assert identity_of(split).hash("") == identity_of(spec).hash("")


@pytest.mark.parametrize("name", ["mlp-digits", "cnn-digits", "gpt-text", "linear-regression"])
def test_every_axis_of_every_leaf_has_a_name_and_every_name_a_place(name):
    names = set()
    for row in table(preset(name).model):
        assert len(row.axes) == len(row.shape), row.name
        split = [axis for one in row.axes for axis in AXES.get(one, ())]
        assert len(split) == len(set(split)), f"{row.name}: an axis of the mesh splits one axis of a leaf"
        names |= set(row.axes)
    assert names <= {*AXES, *WHOLE}
    assert {axis for axes in AXES.values() for axis in axes} == set(MESH_AXES)


@pytest.mark.parametrize("kind", ["adam", "adafactor", "muon", "rprop", "nadam"])
def test_slots_are_split_as_their_parameters_are(kind):
    layout = Layout.of(override(preset("mlp-digits"), [f"optimizer.kind={kind}"]))
    params = {row.name: row for row in layout.params}
    for slot in layout.slots:
        for row in slot.rows:
            own = params[row.name]
            if row.shape == own.shape:
                assert row.axes == own.axes
            else:
                assert all(
                    one == axis or size == 1 for one, axis, size in zip(row.axes, own.axes, row.shape, strict=False)
                )
                assert len(row.axes) in (0, len(row.shape))


def test_an_axis_of_one_device_splits_nothing():
    assert split_axes(("batch", "hidden"), MeshSpec(fsdp=2)) == (("fsdp",), ())
    assert split_axes(("hidden", "embed"), MeshSpec(data=2, fsdp=2, model=2)) == (("model",), ("fsdp",))
    assert split_axes(("classes",), MeshSpec(fsdp=2)) == ((),)


@pytest.mark.parametrize("axis", ["data", "fsdp", "model"])
def test_torch_refuses_what_it_cannot_split_along(axis):
    spec = load("mlp-digits", None, [f"mesh.{axis}=2"])
    with pytest.raises(
        SpecError, match=rf"mesh\.{axis}: 2 devices asked for; .* start 2: parity launch --processes 2"
    ):
        sides.load("torch").build(spec)


def test_one_axis_takes_the_devices_that_were_started():
    assert fit_mesh(MeshSpec(data=8), "data", 3) == MeshSpec(data=3)
    assert fit_mesh(MeshSpec(data=2, fsdp=4, processes=8), "fsdp", 6) == MeshSpec(data=2, fsdp=3, processes=6)
    assert fit_mesh(MeshSpec(fsdp=4), "fsdp", 1) == MeshSpec()
    for devices, left in [(3, 1), (1, 1)]:
        said = f"mesh.data: {devices} devices over 2 along fsdp and model leaves {left}; start a multiple"
        with pytest.raises(SpecError, match=re.escape(said)):
            fit_mesh(MeshSpec(model=2), "data", devices)


def test_a_run_takes_the_mesh_of_what_was_started_and_a_side_that_cannot_say_is_refused(
    capsys, tmp_path, monkeypatch
):
    words = ["train", "--spec", "mlp-digits", "--dir", str(tmp_path / "run"), "--explain-sharding"]
    for name, value in variables(1, 4, 4321).items():
        monkeypatch.setenv(name, value)
    assert main([*words, "--side", "torch", "--fit-mesh", "fsdp", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mesh"] == {"data": 1, "fsdp": 4, "model": 1}
    assert main([*words, "--side", "jax", "--fit-mesh", "data"]) == 2
    assert "--fit-mesh: the side 'jax' does not say how many devices it is started with" in capsys.readouterr().err
