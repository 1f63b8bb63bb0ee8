"""One of several JAX processes that train with collectives and save beside it.

`python saving_loop.py HOME SAVES PLACE WHO`: `PLACE` is where delays are planted, `WHO` the process that has them, or
`all`. They are random, so that threads and loops of the processes meet in every order. What was saved is compared
with what the loop had, at the end and on the way.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RANK, COUNT = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
PLACES = {
    "the copy": "parity.checkpoints.trees.manager:snapshot_joint",
    "the writer": "parity.checkpoints.trees.checkpoints:TreeCheckpoints._run_together",
    "the end of a write": "jax_side.formats.tree_shards:_end",
    "a gather": "jax_side.formats.process_group:_BesideGroup.exchange",
    "the seal": "parity.checkpoints.saving:commit",
}
"""Place to the function before which a process is late."""
MOST = 0.06
"""Longest delay in seconds; a step takes about a millisecond."""


def late(place: str) -> None:
    """Have a function wait a random time before it begins: often none, at times long."""
    import importlib

    module, _, path = PLACES[place].partition(":")
    owner: Any = importlib.import_module(module)
    *outer, name = path.split(".")
    for one in outer:
        owner = getattr(owner, one)
    real: Callable[..., Any] = getattr(owner, name)
    dice = random.Random(f"{place} {RANK}")

    def delayed(*args: Any, **options: Any) -> Any:
        time.sleep(dice.choice((0.0, 0.0, 0.001, MOST * dice.random())))
        return real(*args, **options)

    setattr(owner, name, delayed)


def main() -> None:
    home, saves, place, who = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    import jax

    jax.config.update("jax_num_cpu_devices", 4 // COUNT)
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    address = f"localhost:{os.environ['MASTER_PORT']}"
    jax.distributed.initialize(address, COUNT, RANK, initialization_timeout=60)
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import jax_side
    from parity.policy import Rules

    for one in PLACES if place == "all" else [place] * (place in PLACES):
        if who in ("all", str(RANK)):
            late(one)
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
    over = NamedSharding(mesh, PartitionSpec("a", "b"))
    whole = np.arange(64.0 * 50, dtype=np.float32).reshape(64, 50)
    tree = {"w": jax.make_array_from_callback(whole.shape, over, lambda index: whole[index])}
    step = jax.jit(lambda values: {"w": values["w"] + 1}, donate_argnums=0)
    total = jax.jit(lambda values: values["w"].sum())
    dice = random.Random(7)  # the same in all processes, whose loops do the same
    own = random.Random(RANK)  # what each does by itself
    saved = 0
    with jax_side.CheckpointManager(home / "run", keep=Rules(keep_latest=3)) as manager:
        for number in range(1, saves * 3 + 1):
            tree = step(tree)
            total(tree).block_until_ready()
            if dice.random() < 0.4 and saved < saves:
                manager.save(number, {"state": tree, "note": {"step": number}}, metric=None)
                saved, last = saved + 1, number
            if own.random() < 0.02:
                manager.wait()  # one process alone, while the others may be in a collective
            if dice.random() < 0.01 and saved:
                found = manager.restore("latest", {"state": tree, "note": {"step": 0}})
                assert found.tree["note"] == {"step": found.step} == {"step": last}
                for shard in found.tree["state"]["w"].addressable_shards:
                    assert np.array_equal(shard.data, whole[shard.index] + found.step), found.step
        manager.wait()
        assert manager.latest_step() == last, (manager.all_steps(), last)
    (home / f"{RANK}.txt").write_text(str(saved))


if __name__ == "__main__":
    main()
