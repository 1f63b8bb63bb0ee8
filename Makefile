# One command per wish; CI and CONTRIBUTING use the same ones.
PYTHON ?= python3
# Two for each of two cores: half of what the tests do is wait, for processes and disks. What is quick computes.
WORKERS ?= 4
QUICK_WORKERS ?= 2
BIN := .venv/bin
REPORTS := reports

.PHONY: setup packages check results test test-quick lint types docs format soak bench bench-quick bench-gpu equivalence clean

setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "needs Python 3.11 or newer: make PYTHON=python3.12 setup"; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

packages:  ## what some tests need of the system: a C and C++ compiler, strace, a browser; installed where that is allowed
	@if command -v c++ >/dev/null && command -v cc >/dev/null && command -v strace >/dev/null && command -v chromium >/dev/null; then :; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  apt-get update -qq && apt-get install -y -qq g++ python3-dev strace && \
	  apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; \
	else echo "the tests need cc, c++, strace and chromium (Debian: apt-get install g++ python3-dev strace chromium)"; exit 2; fi

check: setup  ## train, kill, resume, hand over; one table of verdicts and reports/check/check.json
	$(BIN)/parity check --report $(REPORTS)/check

results: setup  ## docs/results.md and the figures of the README, from a real run; figures of `make bench` where there are some
	@rm -rf $(REPORTS)/results
	$(BIN)/parity check --report $(REPORTS)/results || [ -e $(REPORTS)/results/check.json ]
	$(BIN)/python -m benchmarks.results $(REPORTS)/results/check.json $(addprefix --bench ,$(wildcard $(REPORTS)/bench*.json)) \
	  $(addprefix --before ,$(wildcard $(REPORTS)/before*.json))

# Hundreds of interpreters that the tests start import the product: compiled once, also where PYTHONDONTWRITEBYTECODE is set.
COMPILED = @$(BIN)/python -m compileall -q -j $(WORKERS) parity jax_side torch_side

# Tests whose assertions are rewritten are kept, for the other processes and the next run, also where
# PYTHONDONTWRITEBYTECODE is set: 20 s of each process.
test: export PYTHONDONTWRITEBYTECODE :=
test: setup packages  ## the tests
	$(COMPILED)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not soak" tests

test-quick: export PYTHONDONTWRITEBYTECODE :=
test-quick: setup  ## what breaks first, in about two minutes: folders and marks, see tests/quick.py
	$(COMPILED)
	$(BIN)/python -m pytest -n $(QUICK_WORKERS) --dist worksteal -m quick tests

soak: setup packages  ## the full product of presets, precisions and sides; 500 kills, ten times the crashes
	$(COMPILED)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m soak tests

# Large pages for large arrays: docs/checkpoints.md.
bench bench-quick: export GLIBC_TUNABLES ?= glibc.malloc.hugetlb=1

bench-quick: export PARITY_BENCH_MOST_TIMES ?= 1
bench-quick: setup  ## first figures in some minutes, of the first rounds alone; reports/bench.json
	@mkdir -p $(REPORTS)
	$(BIN)/python -m pytest benchmarks -m "not slow" --benchmark-json=$(REPORTS)/bench.json

bench: setup packages  ## all of them: an hour or two on two cores, 14 GB of memory, 8 GB of disk; peers if they are installed
	@mkdir -p $(REPORTS)
	$(BIN)/python -m pytest benchmarks --benchmark-json=$(REPORTS)/bench.json

bench-gpu: setup  ## on a machine with a GPU: checks, steps per second, costs of saves; docs/results-gpu.md (without one it says so, exit code 4); QUICK=--quick for first figures
	$(BIN)/python -m benchmarks.gpu $(QUICK)

equivalence: setup  ## docs/optimizers.md and docs/schedules.md, measured: PyTorch's against the obvious translations; five minutes
	$(BIN)/python -m benchmarks.equivalence
	$(BIN)/python -m benchmarks.equivalence_schedules --write docs/schedules.md

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

docs: setup  ## README, guides and API reference as one site, warnings as errors; reports/site/index.html
	@rm -rf $(REPORTS)/site
	$(BIN)/python -m sphinx --quiet --fail-on-warning -c docs . $(REPORTS)/site

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv $(REPORTS)
