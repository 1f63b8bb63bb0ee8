"""How much anonymous memory a process takes while it does something, sampled; for scripts that tests start."""

import threading
import time
from pathlib import Path


def anonymous_bytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


class Peak:
    """A context manager: what was held before, and the most while it lasts."""

    def __enter__(self):
        self.before, self.most, self.on = anonymous_bytes(), 0, True
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        while self.on:
            self.most = max(self.most, anonymous_bytes())
            time.sleep(0.0005)

    def __exit__(self, *error):
        self.on = False
        self.thread.join()

    def above(self, size):
        """Return how much more than before it took at most, in units of a size."""
        return (self.most - self.before) / size
