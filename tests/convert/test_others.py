"""What the real libraries wrote: read, converted to JAX and back, and restored by the target's own library alone."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from parity.cli import main
from parity.convert import compare_sources, open_any
from parity.formats import Array, Tree, leaves

FIXTURES = Path(__file__).parents[1] / "formats" / "fixtures"
WHOLE = (
    *("fsdp2", "trainers/ddp.pt", "trainers/lightning.ckpt", "trainers/nanogpt.pt"),
    *("trainers/model_folder", "trainers/model_shards"),
    *(f"deepspeed/{name}" for name in ("zero1", "zero2", "zero3", "three", "fp32", "sub_groups", "bf16_optimizer")),
)
"""Two FSDP2 processes through DCP, a DDP file, Lightning, nanoGPT, Hugging Face folders, DeepSpeed's ZeRO.

The Trainer's and Accelerate's optimizers need names: a safetensors file has them in another order than the model."""

NAMES = """
transformer.wte.weight transformer.wpe.weight transformer.h.0.attn.c_attn.weight transformer.h.0.attn.c_proj.weight
transformer.h.0.mlp.c_fc.weight transformer.h.0.mlp.c_proj.weight
transformer.h.0.ln_1.weight transformer.h.0.ln_1.bias
transformer.h.0.attn.c_attn.bias transformer.h.0.attn.c_proj.bias
transformer.h.0.ln_2.weight transformer.h.0.ln_2.bias transformer.h.0.mlp.c_fc.bias transformer.h.0.mlp.c_proj.bias
transformer.ln_f.weight transformer.ln_f.bias
"""
"""The order of the Trainer's optimizer: what decays, then what does not, each in the order of the model."""


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with each checkpoint as Orbax has it, and back as a file of PyTorch."""
    home = tmp_path_factory.mktemp("converted")
    (home / "names").write_text("\n".join(NAMES.split()))
    (home / "four").write_text("0.weight\n0.bias\n1.weight\n1.bias\n")
    named = {
        "trainers/checkpoint-2": ["--names", str(home / "names"), "--reset", "training_args"],
        "trainers/accelerate_one": ["--names", str(home / "four")],
    }
    for name in (*WHOLE, *named):
        out = home / name.replace("/", "-")
        more = named.get(name, [])
        assert main(["convert", str(FIXTURES / name), str(out), "--to", "orbax", *more]) == 0, name
        assert main(["convert", str(out), f"{out}.back", "--to", "torch.save"]) == 0, name
    return home


@pytest.mark.takes_seconds("fsdp2")
@pytest.mark.parametrize("name", [*WHOLE, "trainers/accelerate_one"])
def test_it_comes_back_bit_for_bit(converted: Path, name: str) -> None:
    found = compare_sources(open_any(FIXTURES / name), open_any(converted / f"{name.replace('/', '-')}.back"))
    assert [leaf for leaf in found.leaves if leaf.outcome != "equal"] == []
    assert found.compared > 10


def test_a_checkpoint_of_the_trainer_comes_back_without_its_object(converted: Path) -> None:
    found = compare_sources(
        open_any(FIXTURES / "trainers/checkpoint-2"), open_any(converted / "trainers-checkpoint-2.back")
    )
    assert [leaf.name for leaf in found.leaves if leaf.outcome != "equal"] == ["training_args"]


@pytest.mark.takes_seconds
def test_orbax_and_pytorch_restore_all_of_them_without_this_project(converted: Path) -> None:
    code = """
import sys
from pathlib import Path
for name in ("parity", "jax_side", "torch_side"): sys.modules[name] = None
import orbax.checkpoint as ocp, torch
count = 0
for path in sorted(Path(sys.argv[1]).iterdir()):
    if path.is_dir():
        tree = ocp.PyTreeCheckpointer().restore(path)
        assert tree["params"]
        back = torch.load(f"{path}.back", weights_only=True)
        assert isinstance(back, dict) and back
        count += 1
print(count)
"""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(converted)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert int(ran.stdout.split()[-1]) == len(WHOLE) + 2


def test_the_trainer_needs_names_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(FIXTURES / "trainers/checkpoint-2"), str(tmp_path / "o"), "--to", "orbax"]
    assert main(["convert", *words]) == 2
    assert "--names FILE" in capsys.readouterr().err


@pytest.mark.takes_seconds
def test_two_models_are_converted_one_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(FIXTURES / "trainers/accelerate")
    assert main(["convert", source, str(tmp_path / "o"), "--to", "orbax"]) == 2
    assert "found model, model_1; convert one at a time: --keys model,optimizer" in capsys.readouterr().err
    words = ["--to", "orbax", "--names", str(tmp_path / "names"), "--keys"]
    (tmp_path / "names").write_text("weight\nbias\n")
    assert main(["convert", source, str(tmp_path / "o"), *words, "model_1,optimizer,optimizer_1"]) == 2
    assert "several optimizers (optimizer, optimizer_1)" in capsys.readouterr().err
    assert main(["convert", source, str(tmp_path / "o"), *words, "model_1,nothing"]) == 2
    assert "has no key 'nothing'; it has custom, model, model_1, optimizer" in capsys.readouterr().err
    capsys.readouterr()
    assert main(["convert", source, str(tmp_path / "o"), *words, "model_1,optimizer_1,rng", "--all"]) == 0
    assert "not among the keys that were asked for" in capsys.readouterr().out
    assert main(["convert", str(tmp_path / "o"), str(tmp_path / "b.pt"), "--to", "torch.save"]) == 0
    back, whole = open_any(tmp_path / "b.pt").tree, open_any(Path(source)).tree
    assert list(back) == ["model_1", "optimizer_1", "rng"]
    for key in ("model_1", "optimizer_1"):
        assert {k: a.load().tobytes() for k, a in arrays(back[key])} == {
            k: a.load().tobytes() for k, a in arrays(whole[key])
        }


def test_nothing_of_what_was_asked_for_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    torch.save({"model": {}, "step": 3, "notes": {}}, tmp_path / "a.pt")
    words = ["convert", str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", "torch.save", "--keys", "step"]
    assert main(words) == 0
    torch.save({"model": {"w": torch.ones(1)}, "args": tmp_path.__class__}, tmp_path / "b.pt")
    words = ["convert", str(tmp_path / "b.pt"), str(tmp_path / "p"), "--to", "torch.save"]
    capsys.readouterr()
    assert main([*words, "--keys", "args", "--reset", "args"]) == 5
    assert "holds nothing that was asked for: nothing was converted" in capsys.readouterr().err
    assert not (tmp_path / "p").exists()


def arrays(tree: Tree) -> list[tuple[Any, Array]]:
    return [(keys, leaf) for keys, leaf in leaves(tree) if isinstance(leaf, Array)]


def test_a_model_folder_is_written_in_shards_with_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from parity.formats import write_hugging_face

    monkeypatch.setattr(write_hugging_face, "SHARD_BYTES", 300)
    source = FIXTURES / "trainers/checkpoint-2"
    words = ["--to", "hugging-face"]
    assert main(["convert", str(source), str(tmp_path / "m"), *words, "--reset", "training_args"]) == 1
    assert "--only params" in capsys.readouterr().out
    assert main(["convert", str(source), str(tmp_path / "m"), *words, "--only", "params"]) == 0
    names = sorted(path.name for path in (tmp_path / "m").iterdir())
    assert {"config.json", "generation_config.json", "model.safetensors.index.json", "seal.json"} <= set(names)
    shards = [name for name in names if name.startswith("model-")]
    assert len(shards) > 2
    assert (tmp_path / "m" / "config.json").read_bytes() == (source / "config.json").read_bytes()
    found = open_any(tmp_path / "m").tree["model"]
    expected = open_any(source / "model.safetensors").tree
    assert {n: a.load().tobytes() for n, a in found.items()} == {n: a.load().tobytes() for n, a in expected.items()}
    assert main(["verify", str(tmp_path / "m")]) == 0
