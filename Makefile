# make setup   build .venv, and install the Slurm packages where that is possible
# make demo    a real local Slurm with emulated GPU nodes: faults found, drained, repaired, checked, returned
# make test    everything: lint, types, imports, all tests, the live ones included
# make check   the fast tiers only
# make simulate-safety SEEDS=200 FIRST_SEED=0 JOBS=2   the daemon in simulated fleets where everything goes wrong
# make figures the figures of the node side, on a sandbox (12 minutes)
# make clean   remove what the build and the tests made

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.packages
SOURCES := slurm_lifecycle tests benchmarks

# What the sandbox and the live tests run, and the packages that hold it on Debian and Ubuntu.
SYSTEM_COMMANDS := slurmctld slurmd scontrol squeue munged gcc unshare nsenter ss openssl
SYSTEM_PACKAGES := slurmctld slurmd slurm-client munge gcc libc6-dev util-linux iproute2 procps openssl python3-venv

export PATH := $(PATH):/usr/sbin:/sbin

FIGURES ?=

SEEDS ?= 200
FIRST_SEED ?= 0
JOBS ?= $(shell nproc 2>/dev/null || echo 1)

.PHONY: setup system demo test check simulate-safety figures lint types imports unit clean
.DEFAULT_GOAL := check

setup: system $(STAMP)

# A missing package never stops the build: the fast tiers run without Slurm.
system:
	@missing=""; \
	for command in $(SYSTEM_COMMANDS); do \
	  command -v $$command >/dev/null 2>&1 || missing="$$missing $$command"; \
	done; \
	$(PYTHON) -c 'import ensurepip' >/dev/null 2>&1 || missing="$$missing python3-venv"; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	  echo "installing for the sandbox (missing:$$missing): $(SYSTEM_PACKAGES)"; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  apt-get -q -y install --no-install-recommends $(SYSTEM_PACKAGES) >/dev/null 2>&1 \
	    || { apt-get -q update && apt-get -q -y install --no-install-recommends $(SYSTEM_PACKAGES); } \
	    || echo "could not install them: the sandbox and the live tests will say what they lack"; \
	else \
	  echo "missing for the sandbox and the live tests:$$missing;" \
	    "install as root, on Debian or Ubuntu: apt-get install $(SYSTEM_PACKAGES)"; \
	fi

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "$(PYTHON) is missing or older than 3.10: make setup PYTHON=python3.11"; exit 1; }
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV) \
	  || { echo "no venv module: install python3-venv, then make setup again"; rm -rf $(VENV); exit 1; }
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup
	$(BIN)/slurm-lifecycle sandbox demo

test: setup lint types imports
	$(BIN)/python -m pytest

check: setup lint types imports
	$(BIN)/python -m pytest -m "not live" --ignore=tests/live

# Ends with one line of counts; a seed that fails prints how to run it alone.
simulate-safety: $(STAMP)
	@$(BIN)/python -m slurm_lifecycle.simulation.safety.suite \
	  --seeds $(SEEDS) --first-seed $(FIRST_SEED) --jobs $(JOBS)

figures: setup
	$(BIN)/python benchmarks/figures.py $(FIGURES)

lint: $(STAMP)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find slurm_lifecycle tests -name __pycache__ -type d -prune -exec rm -rf {} +
