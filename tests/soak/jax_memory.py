"""One of several JAX processes that save and restore a split state: `python jax_memory.py INDEX COUNT PORT RUN`.

Prints a JSON line: bytes of the shards that it holds, of the whole state, and its peak above what training takes.
"""

import json
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import jax

OVERRIDES = ["model.hidden=[8192, 8192]", "mesh.fsdp=4", "execution.chunk=1", "batch=8", "validate_every=0"]


class Peak:
    """The anonymous memory that this process takes at most in a block, above what it had before."""

    def __enter__(self):
        self._before = self._most = anonymous()
        self._done = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()
        return self

    def __exit__(self, *error):
        self._done.set()
        self._watch.join()
        self.above = self._most - self._before

    def _look(self):
        while not self._done.is_set():
            self._most = max(self._most, anonymous())
            time.sleep(0.002)


def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) << 10


def main(index, count, port, run):
    import jax_side
    from jax_side import processes
    from parity.contract import Place
    from parity.spec import load
    from parity.storage import WriterLock

    spec = load("mlp-digits", None, OVERRIDES)
    processes.start(Place(address=f"localhost:{port}", index=index, count=count), spec)
    with WriterLock(run) if index == 0 else nullcontext():
        trainer = jax_side.build(spec, run)
        for _ in trainer.steps(3):
            pass
        arrays = jax.tree.leaves(trainer.state)
        with Peak() as save:
            trainer.save(None)
            trainer.wait()
        with Peak() as restore:
            trainer.restore("latest")
        trainer.close()
        own = sum({str(s.index): s.data.nbytes for s in a.addressable_shards}.popitem()[1] for a in arrays)
    whole = sum(array.nbytes for array in arrays)
    said = {"own": own, "whole": whole, "save": save.above, "restore": restore.above}
    print(json.dumps(said), flush=True)
    processes.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
