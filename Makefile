# One command per wish; CI and CONTRIBUTING use the same ones.
PYTHON ?= python3
WORKERS ?= 2
BIN := .venv/bin
REPORTS := reports

.PHONY: setup packages check test lint types format soak bench bench-quick clean

setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "needs Python 3.11 or newer: make PYTHON=python3.12 setup"; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

packages:  ## what some tests need of the system: a C and C++ compiler, strace; installed where that is allowed
	@if command -v c++ >/dev/null && command -v cc >/dev/null && command -v strace >/dev/null; then :; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  apt-get update -qq && apt-get install -y -qq g++ python3-dev strace; \
	else echo "the tests need cc, c++ and strace (Debian: apt-get install g++ python3-dev strace)"; exit 2; fi

check: setup  ## train, kill, resume, hand over; one table of verdicts and reports/check/check.json
	$(BIN)/parity check --report $(REPORTS)/check

test: setup packages  ## the tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not soak" tests

soak: setup packages  ## the full product of presets, precisions and sides; 500 kills, ten times the crashes
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
