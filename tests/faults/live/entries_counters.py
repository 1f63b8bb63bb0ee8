"""Entries of counters: steps, epochs, stops, helpers."""

from __future__ import annotations

from tests.faults.live import trainer_torch
from tests.faults.live.entry import Entry

__all__ = ["ENTRIES"]

ENTRIES = (
    Entry(
        id="step_not_restored",
        source="The-School-of-AI/LLM#560",
        lost="global_step from 0: graphs, LR, names collide",
        train=trainer_torch.train,
        expected=("counters.step",),
        reveals="the number of the first resumed step",
    ),
    Entry(
        id="step_added_twice",
        source="tensorpack/tensorpack#364",
        lost="Restored step added to epoch*steps_per_epoch",
        train=trainer_torch.train,
        expected=("counters.step",),
        reveals="the number of the first resumed step",
    ),
    Entry(
        id="epoch_or_step_repeated",
        source="facebookresearch/FFCV-SSL#3",
        lost="Epoch/step re-run after it was already applied; ckpt N holds N+1 updates",
        train=trainer_torch.train,
        expected=("counters.step",),
        reveals="the number of the first resumed step against the updates in the state",
    ),
    Entry(
        id="midepoch_extra_step",
        source="Lightning-AI/pytorch-lightning#19367",
        lost="Mid-epoch resume ends with one more global step",
        side="torch",
        train=trainer_torch.train,
        expected=("counters.step",),
        reveals="the number of the first resumed step against the updates in the state",
    ),
    Entry(
        id="end_of_epoch_index_overflow",
        source="thinking-machines-lab/tinker-cookbook#448",
        lost="Final checkpoint has batch=n_batches: next epoch silently skipped",
        train=trainer_torch.train,
        options={"save_every": 4},
        expected=("data.position",),
        reveals="the next batches after a save at an epoch's end",
    ),
    Entry(
        id="stop_flag_lost",
        source="huggingface/transformers#10290",
        lost="Finished/early-stopped run trains on when resumed",
        train=trainer_torch.train,
        options={"patience": 2},
        expected=("best", "progress.stopped"),
        reveals="steps after the stop",
        stop_at=16,
    ),
    Entry(
        id="stop_flag_lost",
        source="huggingface/transformers#10290",
        lost="How long training has waited for a better evaluation",
        train=trainer_torch.train,
        plant="waited_reset",
        options={"patience": 3},
        expected=("best", "progress.waited"),
        reveals="the evaluations waited after the restore; the stop comes later",
    ),
    Entry(
        id="loss_accumulator_boundary",
        source="NVIDIA/Megatron-LM#6238",
        lost="First resumed log counted twice / accumulator zero: false bump in a healthy run",
        train=trainer_torch.train,
        options={"save_every": 3},
        reveals="nothing but a logged mean",
        policy=True,
    ),
    Entry(
        id="aux_counter_reset",
        source="pytorch/pytorch#74556",
        lost="Counter inside a helper (model averager) resets: warm-up reruns",
        side="torch",
        train=trainer_torch.train,
        expected=("ema", "counters"),
        reveals="the average's own count after the restore",
        stop_at=7,
    ),
)
