# Every target sets up .venv by itself; a stamp for each set of extras keeps a second run from installing again.
SHELL       := /bin/bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
# Of what pip says, the names of the packages. Modules are compiled to bytecode when they are first imported.
INSTALL := $(PY) -m pip install --disable-pip-version-check --progress-bar off --no-compile --editable
NAMES   := sed -un 's/^Collecting \([^ (]*\).*/  \1/p; s/^Installing collected packages.*/  Installing .../p'

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo test test-slow test-scverse lint bench bench-guard quality docs clean

help:
	@echo "make demo       install into $(VENV) and fit two tables; results in demo-output/"
	@echo "make test       install and run the tests (test-slow: the long ones)"
	@echo "make test-scverse   tests with AnnData, MuData and scanpy, in a .venv of their own"
	@echo "make lint       ruff, mypy and the direction of imports"
	@echo "make bench      measure what is fast, beside the last commit (AGAINST=REF: another)"
	@echo "make bench-guard    name what became slower than recorded (4 minutes)"
	@echo "make quality    compare methods on real and simulated tables (QUALITY=--quick: 3 minutes)"
	@echo "make docs       build the documentation into site/"
	@echo "make clean      remove what the targets made, except $(VENV)"

$(PY):
	@echo "Creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; got %s.%s; set PYTHON=" % sys.version_info[:2])'
	@$(PYTHON) -m venv $(VENV) || { rm -f $(PY); exit 1; }

$(VENV)/.installed: pyproject.toml | $(PY)
	@echo "Installing sparsefactor into $(VENV)"
	@$(INSTALL) . | $(NAMES)
	@touch $@

$(VENV)/.installed-%: pyproject.toml | $(PY)
	@echo "Installing sparsefactor[$*] into $(VENV)"
	@$(INSTALL) ".[$*]" | $(NAMES)
	@touch $@

.PRECIOUS: $(VENV)/.installed-%

demo: $(VENV)/.installed
	@$(PY) -m study demo --out demo-output

test: $(VENV)/.installed-test
	$(PY) -m pytest -n auto

test-slow: $(VENV)/.installed-test
	$(PY) -m pytest -n auto -m slow

# A recursive call: the same rules, with a virtual environment of its own.
test-scverse:
	@$(MAKE) --no-print-directory VENV=.venv-scverse .venv-scverse/.installed-test-scverse
	.venv-scverse/bin/python -m pytest -m "slow or not slow" tests/test_scverse.py tests/test_interop.py tests/test_tutorials.py

lint: $(VENV)/.installed-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports

AGAINST ?= HEAD
bench: $(VENV)/.installed-test
	$(PY) -m benchmarks --against $(AGAINST)

bench-guard: $(VENV)/.installed-test
	$(PY) -m benchmarks.guard

quality: $(VENV)/.installed-quality
	$(PY) -m benchmarks.quality $(QUALITY)

# Its tutorials need scanpy, which holds pandas below 3: apart, as test-scverse.
docs:
	@$(MAKE) --no-print-directory VENV=.venv-scverse .venv-scverse/.installed-docs
	.venv-scverse/bin/python -m mkdocs build --strict

clean:
	rm -rf demo-output site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
