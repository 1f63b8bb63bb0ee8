"""Entries of the best, the last and the kept checkpoints."""

from __future__ import annotations

from tests.faults.live import trainer_folders, trainer_torch
from tests.faults.live.entry import Entry

__all__ = ["ENTRIES"]

ENTRIES = (
    Entry(
        id="best_metric_reset",
        source="keras-team/keras#17012",
        lost="best=inf on resume, first eval overwrites the best file",
        train=trainer_torch.train,
        expected=("best",),
        reveals="the state after the restore; the file of the best at the end",
    ),
    Entry(
        id="best_metric_from_latest",
        source="Deci-AI/super-gradients#1932",
        lost="best_metric loaded from the key holding the latest metric",
        train=trainer_torch.train,
        expected=("best",),
        reveals="the state after the restore",
    ),
    Entry(
        id="best_weights_by_reference",
        source="pytorch/tutorials#188",
        lost="best_state = state_dict() without copy: tracks the latest weights",
        side="torch",
        train=trainer_torch.train,
        expected=("best",),
        reveals="the best weights at the end: the last ones where nothing was stopped",
    ),
    Entry(
        id="topk_list_not_restored",
        source="Lightning-AI/pytorch-lightning#4911",
        lost="best_k_models empty after resume; top-k built afresh",
        train=trainer_torch.train,
        expected=("progress.top", "best", "checkpoint.retention"),
        reveals="the files at the end",
    ),
    Entry(
        id="best_dropped_on_dir_change",
        source="Lightning-AI/pytorch-lightning#12045",
        lost="New dirpath: scores not reloaded",
        train=trainer_folders.train,
        options={"versions": True, "overfits": True},
        expected=("best",),
        reveals="the state after the restore",
    ),
    Entry(
        id="best_fn_evicts_latest",
        source="google/orbax#526",
        lost="With best_fn, max_to_keep keeps best-N; newest evicted, latest_step() goes back",
        side="jax",
        train=trainer_folders.train,
        options={"overfits": True},
        expected=("checkpoint.retention",),
        reveals="the newest checkpoint at the kill: it is gone",
    ),
    Entry(
        id="rotation_deletes_best",
        source="huggingface/transformers#15089",
        lost="Recency pruning removes best",
        train=trainer_folders.train,
        options={"overfits": True},
        expected=("checkpoint.retention", "best"),
        reveals="a resume from the best checkpoint: it is gone",
        scenarios=("best",),
    ),
    Entry(
        id="keep_all_deletes_all",
        source="allenai/open-instruct#542",
        lost="keep=-1 meant all, deletes all",
        train=trainer_folders.train,
        options={"keep": -1},
        expected=("checkpoint.retention",),
        reveals="the checkpoints at the kill: there are none",
    ),
    Entry(
        id="last_links_to_best",
        source="Lightning-AI/pytorch-lightning#19189",
        lost="last.ckpt symlink follows top-k (best) file",
        train=trainer_folders.train,
        options={"overfits": True},
        expected=("checkpoint.latest",),
        reveals="the number of the first resumed step",
    ),
    Entry(
        id="last_not_found_restart",
        source="Lightning-AI/pytorch-lightning#14466",
        lost='ckpt_path="last" finds nothing, starts from scratch',
        train=trainer_folders.train,
        expected=("checkpoint.latest",),
        reveals="the number of the first resumed step",
    ),
)
