# Everything a clone needs but Python ≥ 3.11 and make is set up on first use, in .venv.

PYTHON ?= python3
VENV ?= .venv
# What is installed as torch, without its own dependencies (they are pinned in tests/requirements). Where the
# index serves a CUDA build under this name, point PIP_EXTRA_INDEX_URL at one with CPU wheels and say
# TORCH=torch==2.13.0+cpu.
TORCH ?= torch==2.13.0
# Test processes, and what else to tell pytest: make test PYTEST="-k te"
WORKERS ?= auto
PYTEST ?=

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Two installs into one environment would meet.
.NOTPARALLEL:

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq
# What the engines' metadata misses is left out on purpose: see tests/requirements/engines.txt.
ENGINE_PIP := $(PIP) --no-warn-conflicts
PINS := tests/requirements

# Each shows what it runs and how long that took; `run` as a user would type it, `timed` under a title.
run = @printf '\n$$ %s\n' '$(1)'; TIMEFORMAT='  (%1R s)'; time $(BIN)/$(1)
timed = @printf '\n== %s\n' '$(1)'; TIMEFORMAT='   $(1): %1R s'; time { $(2); }

# A second version of an engine, in a folder of its own; --target does not replace what is there.
beside = $(call timed,install $(1) beside,rm -rf $(VENV)/engines/$(1) && $(ENGINE_PIP) --no-deps --target $(VENV)/engines/$(1) -r $(PINS)/$(1).txt $(2))
BESIDE := megatron-core-0.19.2 transformer-engine-2.17.0 sglang-0.5.16

.PHONY: help demo test check bench docs proof format wheel clean

help:  ## show this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.runtime  ## compile, verify, plan and explain a ready policy for Qwen3-30B-A3B
	$(call run,precc compile policies/nvfp4_rl.prec --model qwen3-30b-a3b -o out)
	$(call run,precc verify out)
	$(call run,precc plan policies/nvfp4_rl.prec --model qwen3-30b-a3b)
	$(call run,precc explain policies/nvfp4_rl.prec --model qwen3-30b-a3b model.layers.3.mlp.experts.5.gate_proj)
	@printf '\nThe artifacts are in out:\n'; cd out; find . -type f | sort

test: check  ## run every check and every test, the engines' own code included
	$(call timed,pytest,$(BIN)/python -m pytest -n $(WORKERS) --dist loadscope $(PYTEST))

check: $(VENV)/.dev $(VENV)/.engines  ## format, lint, types, import layers
	$(call timed,ruff format,$(BIN)/ruff format --check .)
	$(call timed,ruff check,$(BIN)/ruff check .)
	$(call timed,mypy,$(BIN)/mypy)
	$(call timed,import layers,$(BIN)/lint-imports)

bench: $(VENV)/.dev $(VENV)/.engines  ## time lint and compile against their peers, in one run
	$(BIN)/python -m tests.perf

docs: $(VENV)/.dev $(VENV)/.engines  ## write the generated pages again, and name those that changed
	$(BIN)/python docs/generate.py

proof: $(VENV)/.dev $(VENV)/.engines  ## let the engines judge everything again, and write docs/verification.md
	$(BIN)/python -m tests.proof matrix --write
	$(BIN)/python -m tests.proof mutations --write

format: $(VENV)/.dev  ## format the code and the policies, and fix what is safe to fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/precc fmt policies examples

wheel: $(VENV)/.dev  ## build the wheel into dist/
	$(BIN)/python -m build --wheel --no-isolation

clean:  ## remove everything that make made
	rm -rf $(VENV) build dist out out2 .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is older than what it stands for only when that changed: a second run installs nothing.

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit("precc needs Python 3.11 or newer: make PYTHON=…" if sys.version_info < (3, 11) else 0)'
	$(call timed,create $(VENV),$(PYTHON) -m venv $(VENV))
	@touch $@

$(VENV)/.runtime: $(VENV)/.created pyproject.toml $(PINS)/runtime.txt
	$(call timed,install precc,$(PIP) -r $(PINS)/runtime.txt && $(PIP) --no-deps --no-build-isolation -e .)
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime $(PINS)/dev.txt
	$(call timed,install the tools,$(PIP) -r $(PINS)/dev.txt)
	@touch $@

$(VENV)/.engines: $(VENV)/.created $(PINS)/libraries.txt $(PINS)/engines.txt $(BESIDE:%=$(PINS)/%.txt)
	$(call timed,install torch,$(ENGINE_PIP) --no-deps "$(TORCH)")
	$(call timed,install the engines,$(ENGINE_PIP) --no-deps -r $(PINS)/engines.txt)
	$(call timed,install their libraries,$(ENGINE_PIP) -r $(PINS)/libraries.txt)
	$(call beside,megatron-core-0.19.2,--python-version 3.12 --ignore-requires-python --only-binary=:all:)
	$(call beside,transformer-engine-2.17.0)
	$(call beside,sglang-0.5.16)
	@$(BIN)/python -c 'import torch' || { echo 'torch does not load: a CUDA build? see TORCH in the Makefile' >&2; exit 1; }
	@touch $@
