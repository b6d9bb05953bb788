# `make demo` and `make test` work in a fresh clone; everything is installed into .venv.
PYTHON ?= python3
NAME   ?= forest
ARGS   ?=

VENV := .venv
BIN  := $(VENV)/bin
# Always with the constraints: an unpinned torch may download gigabytes.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check -qq install --constraint constraints.txt
CORE  := $(VENV)/.installed-core
DEV   := $(VENV)/.installed-dev
BENCH := $(VENV)/.installed-bench

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test mutations lint style types imports format setup bench clean distclean

help: ## show this list
	@echo "inout: exact inference and learning in structured models"
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(CORE) ## install, then parse some sentences and train a grammar
	@mkdir -p build
	@$(BIN)/inout demo --html build/demo.html

test: $(DEV) ## install, then run the tests (ARGS="-k forest" some, ARGS=--exhaustive all)
	@echo "inout: running the tests; the first run also compiles the CPU kernels"
	@$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal --durations 10 --durations-min 2 $(ARGS)

lint: style types imports ## ruff, mypy and the import contracts

style: $(DEV)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(DEV)
	@$(BIN)/mypy

imports: $(DEV)
	@$(BIN)/lint-imports --no-logo

format: $(DEV) ## rewrite the sources in the project's format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

setup: $(DEV) ## install everything a developer needs

mutations: $(DEV) ## plant recorded faults in copies; the tests must find each
	@$(BIN)/python -m tests.mutations $(ARGS)

bench: $(BENCH) ## run a benchmark (NAME=forest, ARGS=--quick)
	@$(BIN)/python -m benchmarks run $(NAME) $(ARGS)

clean: ## remove caches and built files
	@rm -rf build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print | xargs rm -rf

distclean: clean ## remove .venv as well
	@rm -rf $(VENV)

# ensurepip writes pip last, so an interrupted set-up is made again.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "inout: needs Python 3.11 or later, but $(PYTHON) is $$($(PYTHON) --version 2>&1);" \
		"name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "inout: making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

$(CORE): pyproject.toml constraints.txt | $(BIN)/pip
	@echo "inout: installing into $(VENV), about a minute (longer where PyTorch is still to be downloaded)"
	@$(INSTALL) --editable .
	@touch $@

$(DEV) $(BENCH): $(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "inout: installing into $(VENV) with the $* tools, about a minute (longer where PyTorch is still to be downloaded)"
	@$(INSTALL) --editable '.[$*]'
	@touch $(CORE) $@
