# Everything runs in .venv, which is made on first use.
PYTHON ?= python3
BIN := .venv/bin
export OMP_NUM_THREADS ?= 2

.PHONY: setup run test slow bench docs check clean

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cli,dev]'
	touch $@

run: setup  ## two objectives on embedded data: a table, and a plot in runs/demo
	$(BIN)/python examples/two_objectives.py --out runs/demo

test: setup  ## minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2

slow: setup  ## what takes longer
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 -m slow

bench: setup  ## ratios against plain PyTorch loops
	$(BIN)/python benchmarks/run.py

docs: setup  ## the documents' code runs as it stands
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/test_docs.py src

check: setup  ## lint and types
	$(BIN)/ruff check .
	$(BIN)/mypy

clean:
	rm -rf .venv runs build .pytest_cache .mypy_cache .ruff_cache .hypothesis
