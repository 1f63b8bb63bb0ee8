# One command per wish; CI and CONTRIBUTING use the same ones.
PYTHON ?= python3
WORKERS ?= 2
BIN := .venv/bin
REPORTS := reports

.PHONY: setup check test lint types format soak bench bench-quick clean

setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "needs Python 3.11 or newer: make PYTHON=python3.12 setup"; exit 2; }
	@command -v c++ >/dev/null || echo "note: no C++ compiler; torch.compile and its tests need one (Debian: apt-get install g++)"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

check: setup  ## train, kill, resume, hand over; one table of verdicts and reports/check/check.json
	$(BIN)/parity check --report $(REPORTS)/check

test: setup  ## the tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not soak" tests

soak: setup  ## the full product of presets, precisions and sides
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m soak tests

bench-quick: setup  ## first figures in under three minutes
	@mkdir -p $(REPORTS)
	$(BIN)/python -m pytest benchmarks -m "not slow" --benchmark-json=$(REPORTS)/bench.json

bench: setup
	@mkdir -p $(REPORTS)
	$(BIN)/python -m pytest benchmarks --benchmark-json=$(REPORTS)/bench.json

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv $(REPORTS)
