"""Results to render: records with curves, good and bad, and a file of benchmarks."""

import json
import math
from dataclasses import replace

from parity.contract import Divergence
from parity.results import CheckRecord, Curves, ResolvedSpec, Validations, document, encode

HOSTILE = "<script>alert(1)</script> | `x` [a](http://evil.example/) \x1b[31m \u202e & \"q\" 'p'\n::error::no"
"""What a file may hold where a name or a note is expected."""

ENVIRONMENT = {
    "python": "3.11.2",
    "platform": "Linux",
    "machine": "x86_64",
    "cpus": 2,
    "versions": {"jax": "0.10.2", "torch": "2.13.0"},
    "devices": {"torch": {"threads": 1}},
    "commit": None,
}

STEPS = tuple(range(1, 13))
LOSS = tuple(2.0 / step for step in STEPS)

CURVES = Curves(
    labels=("uninterrupted", "killed and resumed"),
    total=12,
    steps=STEPS,
    loss=(LOSS, LOSS),
    lr=((0.1,) * 12, (0.1,) * 12),
    grad_norm=(tuple(1000.0 / 3**step for step in STEPS),) * 2,
    loss_scale=((1.0,) * 12, (1.0,) * 12),
    difference=(0.0,) * 12,
    kills=(7, 10),
    resumes=(6, 9),
    validations=Validations(metric="accuracy", steps=(6, 12), value=((0.5, 0.9), (0.5, 0.9))),
)

RESUME = CheckRecord(
    name="resume",
    spec="mlp-digits",
    precision="float32",
    sides=("torch",),
    verdict="holds",
    criterion="bitwise",
    steps_compared=12,
    max_abs_diff=0.0,
    max_rel_diff=0.0,
    seconds=1.5,
    curves=CURVES,
    resolved=ResolvedSpec(toml='name = "mlp-digits"\nhidden = [\n    8,\n]\n', hash="ab" * 16),
    digests={"batches": "cd" * 16},
)

_OTHER = (*LOSS[:6], 0.3, 0.28, math.nan, math.inf, None, 0.2)

BROKEN = replace(
    RESUME,
    verdict="broken",
    max_abs_diff=math.inf,
    max_rel_diff=math.inf,
    first_divergence=Divergence(step=7, quantity="loss", expected=LOSS[6], got=0.3),
    suspects=("optimizer.first_moment", "schedule.step"),
    notes=("restored at step 6 is not what was saved",),
    curves=replace(
        CURVES,
        loss=(LOSS, _OTHER),
        difference=tuple(None if b is None else b - a for a, b in zip(LOSS, _OTHER, strict=True)),
        skipped=(3,),
        loss_scale=((65536.0,) * 3 + (32768.0,) * 9, (65536.0,) * 3 + (1024.0,) * 9),
    ),
)

TWINS = replace(
    RESUME,
    name="twins",
    sides=("jax", "torch"),
    criterion="envelope",
    envelope_multiple=0.25,
    notes=("0.25 times the envelope of 16 seeds on each of jax, torch",),
    curves=replace(
        CURVES,
        labels=("jax", "torch"),
        difference=tuple((-1) ** step * 1e-7 for step in STEPS),
        envelope=(4e-7,) * 12,
        allowed=(1.2e-6,) * 12,
        kills=(),
        resumes=(),
        validations=None,
    ),
)

HANDOVER = replace(TWINS, name="handover jax-torch", curves=replace(TWINS.curves, handovers=(6,)))
BARE = CheckRecord(
    name="policy",
    spec="mlp-digits",
    precision="float32",
    sides=("memory",),
    verdict="holds",
    criterion="bitwise",
    steps_compared=288,
)
"""Nothing that may be left out is there."""

ALL = (RESUME, BROKEN, TWINS, HANDOVER, BARE)


def of_every_verdict():
    return [replace(RESUME, verdict=v) for v in ("holds", "broken", "crashed", "inconclusive", "empty")]


def written(path, records=ALL, environment=ENVIRONMENT):
    """Write a result as `parity check --report` does, and return its path."""
    path.write_text(encode(document(records, environment)) + "\n", encoding="utf-8")
    return path


def ratio(median, bar, better="lower", **fields):
    """Return a ratio as files of before have it; with `low` and `high`, as it is written now."""
    return fields | {
        "of": "seconds of ours / seconds of theirs",
        "median": median,
        "q1": median * 0.98,
        "q3": median * 1.03,
        "rounds": 7,
        "better": better,
        "bar": bar,
    }


GROWTH = {
    "x": "parameters (M)",
    "y": "blocking time (s)",
    "points": [[1, 0.01], [10, 0.09], [100, 0.82], [300, 2.6]],
    "slope": 0.0087,
    "intercept": 0.002,
    "r2": 0.9991,
}


def benchmark(name, **extra):
    statistics = {"min": 0.1, "q1": 0.11, "median": 0.12, "q3": 0.13, "max": 0.2, "rounds": 7}
    return {"name": name, "fullname": f"t.py::{name}", "group": "g", "stats": statistics, "extra_info": extra}


def bench_written(path, *benchmarks, machine=None, commit=None):
    """Write a file as `pytest --benchmark-json` does, and return its path."""
    data = {
        "machine_info": {"node": "a-host", "release": "6.1-a-host", "cpu": {"brand_raw": "CPU", "count": 2}}
        | (machine or {}),
        "commit_info": {"id": "5fae2ca", "dirty": False} | (commit or {}),
        "datetime": "2026-11-21T13:00:00",
        "version": "5.1.0",
        "benchmarks": list(benchmarks),
    }
    path.write_text(json.dumps(data), encoding="utf-8")
    return path
