"""Directories of DeepSpeed with ZeRO 1, 2 and 3, read by their layout: master weights and moments by parameter.

The tree has `model` (float32 master weights, and what has none as it was saved: frozen parameters, buffers),
`optimizer` (its state by the name of the parameter), `scheduler`, `scaler`, `step`, `client` (what the caller gave to
`save_checkpoint`), and `deepspeed` with the rest, such as the parameters in the dtype of the training.

Source: `deepspeed/runtime/engine.py`, `zero/stage_1_and_2.py`, `zero/stage3.py`, DeepSpeed 0.19.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parity.errors import CheckpointError
from parity.formats.array import Array, number_of
from parity.formats.deepspeed_shards import Shards, find_shards, step_folder
from parity.formats.tree import Opaque, Source, Tree
from parity.formats.zero_partitions import (
    FlatStream,
    ParameterShapes,
    cut_groups,
    cut_parameters,
    require_fragments,
)

__all__ = ["open_deepspeed"]

OWN = (
    *("buffer_names", "shared_params", "data_sampler", "random_ltd", "skipped_steps", "global_samples"),
    *("dp_world_size", "mp_world_size", "checkpoint_parallel_dimensions", "ds_config", "ds_version"),
    *("sparse_tensor_module_names", "universal_checkpoint_info", "autoep_layers", "ds_autoep_layers"),
)
"""Keys of a file of model states that are DeepSpeed's; what is not one of these is the caller's."""

MOVED = (
    *("module", "optimizer", "lr_scheduler", "global_steps"),
    *("param_shapes", "frozen_param_shapes", "frozen_param_fragments"),
)
"""Keys whose content has a place of its own in the tree, or is in its arrays."""


def open_deepspeed(path: Path) -> Source:
    """Open a directory that `save_checkpoint` wrote, or one step in it; of the first, what `latest` names.

    Raises:
        CheckpointError: A shard is missing, two runs are mixed, parameters are split by more than ZeRO (tensor or
            pipeline parallelism, experts), or the partitions do not fit the shapes.
    """
    folder = step_folder(path)
    shards = find_shards(folder)
    main = shards.models[0].tree
    if not isinstance(main.get("module"), dict):
        raise CheckpointError(f"{shards.models[0].path} has no module: a pipeline, or no file of DeepSpeed")
    tree: dict[str, Tree] = {"model": dict(main["module"]), "optimizer": main.get("optimizer")}
    rest = {key: main[key] for key in OWN if key in main}
    if shards.optims:
        tree |= _unite(folder, shards)
        rest["module"] = {name: leaf for name, leaf in main["module"].items() if _differs(leaf, tree["model"], name)}
    elif main.get("param_shapes") and main.get("optimizer") is None:
        raise CheckpointError(
            f"{folder} has no *_optim_states.pt, in which ZeRO keeps the optimizer and the master weights; "
            f"for the weights alone open {shards.models[0].path.name}"
        )
    tree |= {"scheduler": main.get("lr_scheduler"), "step": main.get("global_steps")}
    tree["client"] = {key: leaf for key, leaf in main.items() if key not in (*OWN, *MOVED)}
    files = [*shards.models, *shards.optims]
    return Source(
        path=path,
        format="deepspeed",
        tree={**{key: leaf for key, leaf in tree.items() if leaf not in (None, {})}, "deepspeed": rest},
        detail=f"DeepSpeed {main.get('ds_version')}, {folder.name}, {_kind(shards)}",
        verify=lambda: [(f"{file.path.name}: {name}", what) for file in files for name, what in file.faults()],
        unproven="that its files are of one save: each has its CRC-32 for each record, and nothing binds them",
    )


def _kind(shards: Shards) -> str:
    return f"ZeRO {_stage(shards.zero)}, {len(shards.optims)} ranks" if shards.optims else "without ZeRO"


def _stage(zero: Sequence[Mapping[str, Any]]) -> int:
    found = zero[0].get("zero_stage", 1)  # the optimizer for bfloat16 alone, of the kind of stage 1, has none
    stage = found.content if isinstance(found, Opaque) else found
    if stage not in (1, 2, 3):
        raise CheckpointError(f"the ZeRO stage is {stage!r:.60}, expected 1, 2 or 3")
    return int(stage)


def _differs(leaf: Tree, model: Mapping[str, Tree], name: str) -> bool:
    """Return whether a leaf of the module is another than that of the model: a copy in 16 bits, not a placeholder."""
    return model.get(name) is not leaf and not (isinstance(leaf, Array) and leaf.shape == (0,))


def _unite(folder: Path, shards: Shards) -> dict[str, Tree]:
    """Return model, optimizer and scaler, of the partitions of all ranks."""
    zero, main, where = shards.zero, shards.models[0].tree, str(folder)
    groups = _shapes(main.get("param_shapes"), where)
    layout = _PartitionLayout(where, _stage(zero), groups, zero[0].get("param_alignment_paddings"))
    key = "fp32_flat_groups" if layout.stage == 3 else "single_partition_of_fp32_groups"
    held = [_arrays(one.get(key), f"{where}: {key}") for one in zero]
    masters = layout.cut(held)
    layout.require_ranks(held, [_fragments(one.get("param_slice_mappings")) for one in zero])
    model = dict(main["module"])
    model |= masters | _frozen(shards, layout.stage, where)
    shared = main.get("shared_params")
    for name, other in shared.items() if isinstance(shared, dict) else ():
        if isinstance(other, str) and isinstance(model.get(other), Array):
            model[other].shared = other
            model[name] = model[other]
    made: dict[str, Tree] = {"model": model, "optimizer": _optimizer(layout, zero)}
    if isinstance(scaler := zero[0].get("loss_scaler"), Opaque) and isinstance(scaler.content, dict):
        made["scaler"] = {**scaler.content, "overflow": zero[0].get("overflow")}
    return made


@dataclass(frozen=True)
class _PartitionLayout:
    """How parameters lie in the partitions."""

    where: str
    stage: int
    groups: Sequence[ParameterShapes]
    paddings: Any

    def cut(self, held: Sequence[Sequence[Array]]) -> dict[str, Array]:
        """Return the parameters by name from the flat groups of each rank."""
        if self.stage == 3:
            merged = {name: shape for group in self.groups for name, shape in group.items()}
            return cut_parameters([FlatStream(arrays) for arrays in held], merged, self.where)
        if any(len(arrays) != len(self.groups) for arrays in held):
            counts = ", ".join(str(len(arrays)) for arrays in held)
            raise CheckpointError(f"{self.where}: partitions of {counts} groups, expected {len(self.groups)}")
        found: dict[str, Array] = {}
        for at, shapes in enumerate(self.groups):
            stream = FlatStream([arrays[at] for arrays in held])
            found |= cut_groups(stream, shapes, self._gaps(at), len(held), self.where)
        return found

    def require_ranks(
        self, held: Sequence[Sequence[Array]], recorded: Sequence[Sequence[Mapping[str, tuple[int, int]]]]
    ) -> None:
        """Check that each file is of the rank that its name says, where all of them say what they hold."""
        if self.stage == 3 or any(len(groups) != len(self.groups) for groups in recorded):
            return  # stage 3 and older versions do not say it
        for at, shapes in enumerate(self.groups):
            stream = FlatStream([arrays[at] for arrays in held])
            parts = [groups[at] for groups in recorded]
            require_fragments(stream, shapes, self._gaps(at), parts, self.where)

    def _gaps(self, at: int) -> list[int] | None:
        if self.paddings is None:
            return None
        gaps = self.paddings[at] if isinstance(self.paddings, list) and at < len(self.paddings) else None
        if not isinstance(gaps, list) or not all(type(gap) is int and gap >= 0 for gap in gaps):
            raise CheckpointError(f"{self.where}: the paddings {gaps!r:.60} are no counts of elements")
        return gaps


def _shapes(value: Any, where: str) -> list[ParameterShapes]:
    groups = value if isinstance(value, list) else [value]
    for shape in (shape for group in groups for shape in (group.values() if isinstance(group, dict) else [None])):
        if not isinstance(shape, tuple) or not all(type(n) is int and 0 <= n < 1 << 62 for n in shape):
            raise CheckpointError(f"{where}: param_shapes has {shape!r:.60} where a shape should be")
    return groups


def _arrays(value: Any, where: str) -> list[Array]:
    if not isinstance(value, list) or not all(isinstance(one, Array) and len(one.shape) == 1 for one in value):
        raise CheckpointError(f"{where} holds no flat tensors")
    return value


def _fragments(value: Any) -> list[dict[str, tuple[int, int]]]:
    """Return where the parameters of each group lie in the partition of a rank; empty where its file does not say."""
    made: list[dict[str, tuple[int, int]]] = []
    for group in value if isinstance(value, list) else ():
        if not isinstance(group, dict):
            return []
        made.append({})
        for name, one in group.items():
            fields = one.content if isinstance(one, Opaque) else None
            start, count = (fields.get("start"), fields.get("numel")) if isinstance(fields, dict) else (None, None)
            if type(start) is not int or type(count) is not int:
                return []
            made[-1][name] = start, count
    return made


def _frozen(shards: Shards, stage: int, where: str) -> dict[str, Tree]:
    """Return the parameters that are not trained; those of stage 3 are in parts, of the others whole."""
    states = [source.tree for source in shards.models]
    shapes = states[0].get("frozen_param_shapes")
    if stage < 3 or not shapes:
        return {}
    [checked] = _shapes([shapes], where)
    if len(states) != len(shards.optims):
        raise CheckpointError(
            f"{where} has model states of {len(states)} ranks and optimizer states of {len(shards.optims)}: "
            f"parts of {len(shapes)} frozen arrays are missing"
        )
    fragments = [state.get("frozen_param_fragments") for state in states]
    if not all(isinstance(one, dict) and one.keys() == checked.keys() for one in fragments):
        raise CheckpointError(f"{where}: the ranks hold parts of other frozen parameters than rank 0 names")
    found: dict[str, Tree] = {}
    for name, shape in checked.items():
        streams = [FlatStream(_arrays([one[name]], f"{where}: {name}")) for one in fragments]
        found |= cut_parameters(streams, {name: shape}, where)
    return found


def _optimizer(layout: _PartitionLayout, zero: Sequence[Mapping[str, Any]]) -> Tree:
    """Return the optimizer's state by the names of parameters, its groups with names for positions."""
    saved = [one.get("optimizer_state_dict" if layout.stage == 3 else "base_optimizer_state") for one in zero]
    flat = [_by_group(one, layout.where) for one in saved]
    kinds = sorted({kind for states in flat for state in states for kind in state}, key=str)
    state: dict[str, dict[str, Tree]] = {name: {} for group in layout.groups for name in group}
    for kind in kinds:
        values: list[list[Any]] = [[one.get(kind) for one in states] for states in flat]
        divided = [isinstance(value, Array) and len(value.shape) == 1 for rank in values for value in rank]
        if any(divided) and not all(divided):
            raise CheckpointError(f"{layout.where}: {kind} of the optimizer is missing in some groups or ranks")
        found = layout.cut(values) if any(divided) else _alike(layout, kind, values)
        for name, value in found.items():
            state[name][kind] = value
    groups = saved[0].get("param_groups") if isinstance(saved[0], dict) else None
    made: dict[str, Tree] = {"state": {name: held for name, held in state.items() if held}}
    if (
        isinstance(groups, list)
        and len(groups) == len(layout.groups)
        and all(isinstance(one, dict) for one in groups)
    ):
        made["param_groups"] = [
            {**one, "params": list(names)} for one, names in zip(groups, layout.groups, strict=True)
        ]
    if "base_optimizer_state_step" in zero[0]:
        made["step"] = zero[0]["base_optimizer_state_step"]
    return made


def _by_group(saved: Any, where: str) -> list[dict[str, Tree]]:
    """Return the state of each flat group: a state dict of the optimizer, or a list where padding was removed."""
    state = saved.get("state") if isinstance(saved, dict) else saved
    if isinstance(state, dict):
        state = [state[key] for key in sorted(state, key=lambda key: (str(type(key)), key))]
    if not isinstance(state, list) or not all(isinstance(one, dict) for one in state):
        raise CheckpointError(f"{where}: the optimizer states of a rank are no state of an optimizer")
    return state


def _alike(layout: _PartitionLayout, kind: str, ranks: Sequence[Sequence[Tree]]) -> dict[str, Tree]:
    """Return what one value for a group, such as its step, is for each parameter of it.

    All ranks have the same. Stage 3 may divide groups further; a value that differs between parts has no parameter.
    """
    plain = [[number_of(value) for value in values] for values in ranks]
    if any(values != plain[0] for values in plain):
        raise CheckpointError(f"{layout.where}: {kind} of the optimizer differs between ranks: files of two saves")
    values = list(ranks[0])
    if len(values) != len(layout.groups):
        if layout.stage < 3 or any(value != plain[0][0] for value in plain[0]):
            raise CheckpointError(
                f"{layout.where}: the optimizer has {kind} for {len(values)} groups, expected {len(layout.groups)}"
            )
        values = [values[0]] * len(layout.groups)
    return {name: value for group, value in zip(layout.groups, values, strict=True) for name in group}
