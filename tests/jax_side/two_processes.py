"""One of two JAX processes that train, save and restore together: `python two_processes.py INDEX PORT RUN PLANT`.

Prints a JSON line: what it digested, what it restored. Process 0 holds the writer's lock. The plant `mute` makes
process 1 leave no digests; `spy` is always on.
"""

import contextlib
import json
import sys
from pathlib import Path

import jax

DEVICES = 2
OVERRIDES = ["model.hidden=[16]", "execution.chunk=2", "save.keep_latest=2"]


def main(index: int, port: str, run: Path, plant: str) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_num_cpu_devices", DEVICES)
    jax.distributed.initialize(f"localhost:{port}", 2, index)

    import jax_side
    from jax_side.formats import orbax_handler
    from parity.spec import load
    from parity.storage import WriterLock
    from tests.support.small import state_of

    digested: list[str] = []
    digest_files = orbax_handler.digest_files

    def spy(root: Path, names: list[str]) -> object:
        digested.extend(names)
        return digest_files(root, names)

    orbax_handler.digest_files = spy
    if plant == "mute" and index == 1:
        orbax_handler._OwnDigests.result = lambda self, timeout=None: None
    said: dict[str, object] = {"index": index}
    spec = load("mlp-digits", None, [*OVERRIDES, f"mesh.data={2 * DEVICES}"])
    with WriterLock(run) if index == 0 else contextlib.nullcontext():
        trainer = jax_side.build(spec, run)
        for step, metric in ((2, 0.25), (4, 0.5)):
            for _ in trainer.steps(step):
                pass
            trainer.save(metric)
        said["saved"] = state_of(trainer)
        for _ in trainer.steps(6):
            pass
        said["restored_step"] = trainer.restore("latest")
        said["restored"] = state_of(trainer)
        trainer.close()
    print(json.dumps({**said, "digested": digested}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4])
