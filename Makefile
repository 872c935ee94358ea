# Every target sets up its own virtual environment first; nothing else has to be done on a fresh machine.
#   make bench   a tour: nine small suites of all families on this machine, a table each, then the site
#   make test    what has to pass before a change lands (make test-full, make test-measured: the other suites)
#   make first-contact [RUNNER=local-cuda]   on a new machine: what tells most first, then the site
# TORCH=cpu installs torch for processors; TORCH=keep uses the one that is there (docs/installing.md). An environment keeps its choice.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TORCH ?= $(or $(shell cat $(VENV)/.torch 2>/dev/null),cpu)
INSTALLER ?= pip
READY := $(VENV)/.ready-$(TORCH)
READY_DEV := $(VENV)/.ready-dev-$(TORCH)
SUITES ?= $(addprefix tour/,gemm attention-decode cross-entropy all-reduce tool-calls speculation disaggregation early-stopping data-parallel)
TIER ?= standard
RUNNER ?= local-cpu
RUN ?= latest
NIGHTLY ?= docs/examples/nightly-cpu.yaml
DEVICE ?= cpu
BASE ?=
TESTS ?=
JUNIT ?=
CHAOS ?=

.PHONY: setup dev bench first-contact test test-full test-measured check format docs image-base image locks reasoner denoiser smoke nightly site gate calibrate clean

how_to_call = printf '%s\n' '' 'To call paceline in this shell:  . $(BIN)/activate'

# What measuring needs; "dev" adds what tests and checks need.
setup: $(READY)
	@$(how_to_call)
dev: $(READY_DEV)

install = $(PYTHON) setup/install.py --venv $(VENV) --torch $(TORCH) --installer $(INSTALLER)
$(READY): pyproject.toml constraints.txt setup/install.py
	$(install)
	touch $@

$(READY_DEV): pyproject.toml constraints.txt setup/install.py
	$(install) --dev
	touch $(READY) $@

# One run, whose processes import torch once; each suite's table is there as soon as the suite is measured.
bench: $(READY)
	@status=0; \
	$(BIN)/paceline run $(SUITES) --one-by-one --tier $(TIER) --runner $(RUNNER) || status=$$?; \
	$(BIN)/paceline site build && $(BIN)/paceline summary $(SUITES) && { $(how_to_call); exit $$status; }

# Three suites (docs/testing.md): what has to pass before a change lands, everything that no clock decides, and what asks
# this machine's speed. TESTS=FILE runs those tests, whatever their suite; JUNIT=FOLDER leaves a JUnit file of each part;
# CHAOS=SEED stands processes still and takes the cores meanwhile.
run_suite = $(BIN)/python tests/run.py $(1) $(if $(JUNIT),--junit=$(JUNIT)) $(if $(CHAOS),--chaos=$(CHAOS))
test: dev
ifeq ($(TESTS),)
	$(call run_suite,gate)
else
	$(BIN)/python -m pytest $(TESTS)
endif

test-full: dev
	$(call run_suite,full)

test-measured: dev
	$(call run_suite,measured)

first-contact: $(READY)
	$(BIN)/paceline first-contact --runner $(RUNNER)

check: dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/paceline validate

format: dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Container images, built on this host's Docker Engine without a registry. For accelerators, on the vendor's image:
#   make image DEVICE=cuda BASE=REGISTRY/NAME@sha256:...
image-base: $(READY)
	$(BIN)/python containers/build.py base

image: $(READY)
	$(BIN)/python containers/build.py image $(DEVICE) --base '$(BASE)'

locks: $(READY)
	$(BIN)/python containers/build.py lock cpu
	$(BIN)/python containers/build.py lock accelerator

reasoner: $(READY)
	$(BIN)/python -m paceline.families.reasoning.core.reasoner train weak
	$(BIN)/python -m paceline.families.reasoning.core.reasoner train strong

denoiser: $(READY)
	$(BIN)/python -m paceline.families.serving.ops.denoise

docs: $(READY)
	$(BIN)/python -m paceline.cli.reference docs

smoke: $(READY)
	$(BIN)/paceline run collectives/all-reduce --tier quick --launches 1 --filter size_bytes=4KiB

nightly: $(READY)
	$(BIN)/paceline nightly --config $(NIGHTLY)

site: $(READY)
	$(BIN)/paceline site build

gate: $(READY)
	$(BIN)/paceline gate $(RUN)

calibrate: $(READY)
	$(BIN)/paceline calibrate
	$(BIN)/paceline calibrate --runner local-cpu
	$(BIN)/paceline calibrate --runner local-cpu --against bare-loop
	$(BIN)/paceline calibrate --runner local-cpu --against bare-script
	$(BIN)/paceline calibrate --runner local-cpu --against torch-benchmark
	$(BIN)/paceline calibrate --runner local-cpu --levels

clean:
	rm -rf build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
