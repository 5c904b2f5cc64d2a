# `make` alone lists the targets. Each of them first sets itself up in .venv; a second call installs nothing.
# Kept to what GNU Make 3.81 understands, the one that macOS ships.

PYTHON ?= python3
PAPER ?= sentiment-direction
ARGS ?=
BENCH ?= patching batch

# Waiting OpenMP threads sleep instead of spinning: beside another busy process a forward pass then takes 0.8 s, not 10 s.
OMP_WAIT_POLICY ?= passive
export OMP_WAIT_POLICY
export PIP_DISABLE_PIP_VERSION_CHECK := 1

BIN := .venv/bin
TORCH := $(shell sed -n 's/^torch==//p' requirements.lock)
PACKAGES := $(shell grep -c '==' requirements.lock)

# .ready holds the folder, since a .venv is full of absolute paths: it is made anew after the folder moved or its Python went,
# and when an install was cut short, which leaves .unfinished. A changed lock updates it. One without either mark is not ours.
USABLE := $(shell test "$$(cat .venv/.ready 2>/dev/null)" = "$(CURDIR)" && $(BIN)/python -c "" 2>/dev/null && echo yes)

.PHONY: help setup run test lint refresh evidence book bundle bench lock clean anew

help: ## List the targets
	@echo "make TARGET [PAPER=slug] [ARGS=\"...\"] [PYTHON=python3.12]"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{ printf "%-10s %s\n", $$1, $$2 }'

setup: .venv/.ready ## Install the tested versions into .venv (2 to 3 minutes, once)
	@echo "Ready: make run, make help, or $(BIN)/hookbook list"

run: .venv/.ready ## Run a notebook into runs/ and show its ledger: make run PAPER=sentiment-direction ARGS="-p seed 1"
	@$(BIN)/hookbook run $(PAPER) $(ARGS)

test: lint ## Lint, check that everything imports, then run all tests: make test ARGS="-k stats" for some
	@$(BIN)/python -m pytest -q tests/test_imports.py
	@$(BIN)/python -m pytest --ignore=tests/test_imports.py $(ARGS)

lint: .venv/.ready ## Check code and notebooks with ruff
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check .

refresh: .venv/.ready ## Rerun a notebook with its defaults and keep the outputs in the committed copy
	@$(BIN)/hookbook refresh $(PAPER) $(ARGS)

# PAPER has a default, which must not mean that only this one is run
evidence: .venv/.ready ## Run the evidence presets that are behind and keep their ledgers (hours): make evidence PAPER="one two"
	@$(BIN)/hookbook evidence $(if $(filter file,$(origin PAPER)),,$(PAPER))

book: .venv/.ready ## Build the reading site into book/_build (a minute; it executes no notebook)
	@$(BIN)/python -m book

bundle: .venv/.ready ## Pack all that a classroom without a network needs into build/hookbook-bundle.tar
	@$(BIN)/python tools/bundle.py $(ARGS)

bench: .venv/.ready ## Measure beside the peers into benchmarks/results (an hour, idle machine): make bench BENCH=patching
	@for name in $(BENCH); do $(BIN)/python benchmarks/$$name.py $(ARGS) || exit 1; done

define check_python
@command -v "$(PYTHON)" >/dev/null || \
  { echo "Hookbook needs Python 3.11 or newer, but there is no $(PYTHON) here: install it, or name another: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 1; }
@"$(PYTHON)" -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null || \
  { echo "Hookbook needs Python 3.11 or newer, but $(PYTHON) is $$("$(PYTHON)" -V 2>&1): name a newer one: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 1; }
@"$(PYTHON)" -c "import ensurepip, venv" 2>/dev/null || \
  { echo "This $(PYTHON) cannot make virtual environments: install its venv package (Debian and Ubuntu: python3-venv) and try again." >&2; exit 1; }
endef

.venv/.ready: requirements.lock pyproject.toml $(if $(USABLE),,anew)
	$(check_python)
	@test ! -e .venv || test -f .venv/.ready || test -f .venv/.unfinished || \
	  { echo "There is a .venv that make did not make: rename it, or remove it with make clean, and repeat the command." >&2; exit 1; }
	$(if $(USABLE),@mv $@ .venv/.unfinished,@rm -rf .venv && mkdir .venv && touch .venv/.unfinished && "$(PYTHON)" -m venv .venv)
	@echo "$(if $(USABLE),Bringing .venv up to date ...,Installing $(PACKAGES) packages into .venv: a few minutes and 2 GB (6 GB with CUDA) ...)"
	@{ $(BIN)/python -m pip install --quiet -c requirements.lock "torch==$(TORCH)" \
	  && $(BIN)/python -m pip install --quiet -r requirements.lock \
	  && $(BIN)/python -m pip install --quiet --no-deps -e . ; } || \
	  { echo "The installation stopped: the lines above say why (no network, a full disk, a Python that is too new). Put it right and repeat the command." >&2; exit 1; }
	@echo "$(CURDIR)" > .venv/.unfinished && mv .venv/.unfinished $@

LOCKENV := build/lock
lock: ## Pin the newest versions that pyproject.toml allows (torch moves only by TORCH=x.y.z); then make test
	$(check_python)
	@echo "Resolving the dependencies in $(LOCKENV), a few minutes ..."
	@"$(PYTHON)" -m venv --clear $(LOCKENV)
	@$(LOCKENV)/bin/python tools/lock.py $(TORCH)
	@rm -rf $(LOCKENV)

clean: ## Remove .venv and everything else that make and the tests built; runs/ and the model cache stay
	@rm -rf .venv build book/_build *.egg-info .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
