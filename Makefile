# Two commands are all the set-up there is: `make quickstart` and `make test`.
# The environment is made once, in .venv, from constraints.txt; pip's own PIP_* variables are honoured.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# the number of parallel test processes
JOBS ?= 2

.PHONY: help setup quickstart test learn check format bench bench-table clean

help:
	@echo "make quickstart   set up, train the embedded demo, show the result"
	@echo "make test         set up, run the tests"
	@echo "make learn        the slow tests in which models must learn"
	@echo "make bench        speed beside the peers in REGARD_PEERS (hours; see docs/benchmarks.md)"
	@echo "make check        format, lint, types"
	@echo "make format       put the code into shape"

setup: $(READY)

# torch comes first and pinned: an unpinned torch would bring gigabytes of GPU libraries
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "regard needs Python 3.11 or newer, found " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[develop]'
	@touch $(READY)

quickstart: $(READY)
	$(BIN)/regard quickstart

test: $(READY)
	$(BIN)/python -m pytest -n $(JOBS) -m "not learn"

learn: $(READY)
	$(BIN)/python -m pytest -m learn

# BENCH=... names some of the experiments, or gives options
bench: $(READY)
	$(BIN)/python -m benchmarks.run $(BENCH)
	$(BIN)/python -m benchmarks.table

bench-table: $(READY)
	$(BIN)/python -m benchmarks.table

# the README's table of results, from what lies beside the recipes
results-table: $(READY)
	$(BIN)/python -m recipes.table

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
