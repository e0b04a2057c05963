# Everything runs in .venv, which is made on first use.
PYTHON ?= python3
BIN := .venv/bin
export OMP_NUM_THREADS ?= 2

.PHONY: setup run test test-rounding slow bench docs check clean

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cli,export,grpc,dev,docs]'
	touch $@

DEMO := $(patsubst %,examples/demo/%.toml,FedAvg FedAvg-weighted FCSG-M Acc-FCSG-M FedDRO)
run: setup  ## six methods on rare digits at eight heterogeneous sites: a table, and a page in runs/demo
	$(BIN)/rookery compare $(DEMO) --seeds 5 --grid algorithm.lr=0.1,0.3,1.0 --tuning-seeds 2 --by "validation worst class" \
	  --out runs/demo --title "Rare digits at eight sites" --intro "Which of scikit-learn's digits are 5 to 9, where these are one row in ten. \
	Eight unequal sites with different digits. Every method had the same rounds, rows a step, grid of step sizes and validation rows."

# work stealing keeps neighbouring tests in one process, which shares their traced graphs
PYTEST := $(BIN)/python -m pytest -q -n 2 --dist worksteal -rs
test slow test-rounding docs: export OMP_NUM_THREADS = 1

# what `make docs` runs is left out
DOCS := tests/system/test_docs.py tests/system/test_notebooks.py
TESTS := tests $(addprefix --ignore=,$(DOCS))
test: setup  ## minutes
	$(PYTEST) $(TESTS)

# sums, products and exponentials as on an older processor: other last bits
ROUNDING ?= ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=SSE41 OPENBLAS_CORETYPE=Nehalem
test-rounding: setup  ## the same tests where floating-point sums round differently
	env $(ROUNDING) $(PYTEST) $(TESTS)

# FLARE and Ray, which setup leaves out: hundreds of megabytes
.venv/extras: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[flare,ray,tracking]'
	touch $@

# FLARE's and Ray's processes have two cores to themselves
ALONE := $(wildcard tests/system/test_flare*.py) tests/unit/engines/test_ray.py
slow: setup .venv/extras  ## what takes longer, and what needs FLARE or Ray
	$(PYTEST) -m slow tests $(addprefix --ignore=,$(ALONE))
	$(BIN)/python -m pytest -q -rs -m slow $(ALONE)

bench: setup  ## ratios against plain PyTorch loops
	$(BIN)/python benchmarks/run.py

docs: setup  ## the documents as a site, in site/; then the code in them runs as it stands
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(PYTEST) $(DOCS) src

check: setup  ## lint and types
	$(BIN)/ruff check .
	$(BIN)/mypy

clean:
	rm -rf .venv runs build site .pytest_cache .mypy_cache .ruff_cache .hypothesis
