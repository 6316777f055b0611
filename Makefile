# `make demo` and `make test` set everything up by themselves; they need Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# what is timed has its memory in huge pages, see docs/memory.md; elsewhere than under glibc this says nothing
HUGE_PAGES := GLIBC_TUNABLES=glibc.malloc.hugetlb=1

.PHONY: demo test test-tables test-all test-gpu test-versions test-newest lint format bench docs dist ops promises bad-input tpu-models install

install: $(STAMP)

$(STAMP): pyproject.toml constraints-dev.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints-dev.txt --editable ".[dev,examples]"
	touch $(STAMP)

demo: $(STAMP)
	$(HUGE_PAGES) $(BIN)/python examples/digits.py --accelerator cpu --devices 8

test: $(STAMP)
	$(BIN)/python -m pytest -n 2

# what make test leaves out and CI runs: rows of large tables, long tests
test-tables: $(STAMP)
	$(BIN)/python -m pytest -n 2 -rs -m tables

test-all: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m "not gpu"

# on a machine with a GPU and JAX's plug-in for it
test-gpu: $(STAMP)
	SYSTOLIC_TEST_PLATFORMS=cuda,cpu $(BIN)/python -m pytest -m gpu

# environments with other versions of PyTorch and JAX; needs Python 3.11 to 3.14, and takes about 25 minutes
test-versions: $(STAMP)
	$(BIN)/python scripts/check_versions.py

# the newest releases of PyTorch and JAX, allowed or not; needs Python 3.13
test-newest: $(STAMP)
	$(BIN)/python scripts/check_versions.py --newest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python -m pytest tests/test_layers.py

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints-dev.txt --editable ".[bench]"
	$(HUGE_PAGES) $(BIN)/python benchmarks/run.py

# the site, in site/; a warning is an error
docs: $(STAMP)
	$(BIN)/python scripts/reference_docs.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# the wheel and the sdist, in dist/; scripts/check_dist.py installs and tries them
dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build

ops: $(STAMP)
	$(BIN)/python scripts/op_coverage.py

promises: $(STAMP)
	$(BIN)/python scripts/promises.py

bad-input: $(STAMP)
	$(BIN)/python scripts/bad_input_page.py

tpu-models: $(STAMP)
	$(BIN)/python benchmarks/tpu_models.py
