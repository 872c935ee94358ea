# Every target sets up its own virtual environment first; nothing else has to be done on a fresh machine.
#   make bench   measure the quick tier on this machine and build the site
#   make test    all tests
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SUITES ?= collectives kernels training serving reasoning
TIER ?= quick
RUNNER ?= local-cpu
RUN ?= latest
NIGHTLY ?= docs/examples/nightly-cpu.yaml
DEVICE ?= cpu
BASE ?=
TESTS ?=
JUNIT ?=

.PHONY: setup bench test check format docs image-base image locks reasoner denoiser smoke nightly site gate calibrate clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "paceline needs Python 3.11 or later: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

bench: setup
	$(BIN)/paceline run $(SUITES) --tier $(TIER) --runner $(RUNNER)
	$(BIN)/paceline site build

# Unit tests share the cores, and so do those that start ranks and ask what is right; the others measure, one after another.
# JUNIT=FOLDER leaves a JUnit file of each part there.
report = $(if $(JUNIT),--junitxml=$(JUNIT)/$(1).xml)
SHARED := tests/conformance tests/distributed tests/docker tests/nightly tests/site tests/slurm
test: setup
ifeq ($(TESTS),)
	status=0; \
	$(BIN)/python -m pytest tests/unit tests/docs --numprocesses auto $(call report,unit) || status=1; \
	$(BIN)/python -m pytest $(SHARED) --numprocesses 2 --dist loadfile $(call report,shared) || status=1; \
	$(BIN)/python -m pytest tests --ignore=tests/unit --ignore=tests/docs $(SHARED:%=--ignore=%) $(call report,alone) || status=1; \
	exit $$status
else
	$(BIN)/python -m pytest $(TESTS)
endif

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/paceline validate

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Container images, built on this host's Docker Engine without a registry. For accelerators, on the vendor's image:
#   make image DEVICE=cuda BASE=REGISTRY/NAME@sha256:...
image-base: setup
	$(BIN)/python containers/build.py base

image: setup
	$(BIN)/python containers/build.py image $(DEVICE) --base '$(BASE)'

locks: setup
	$(BIN)/python containers/build.py lock cpu
	$(BIN)/python containers/build.py lock accelerator

reasoner: setup
	$(BIN)/python -m paceline.families.reasoning.reasoner train weak
	$(BIN)/python -m paceline.families.reasoning.reasoner train strong

denoiser: setup
	$(BIN)/python -m paceline.families.serving.diffusion

docs: setup
	$(BIN)/python -m paceline.cli.reference docs

smoke: setup
	$(BIN)/paceline run collectives/all-reduce --tier quick --launches 1 --filter size_bytes=4KiB

nightly: setup
	$(BIN)/paceline nightly --config $(NIGHTLY)

site: setup
	$(BIN)/paceline site build

gate: setup
	$(BIN)/paceline gate $(RUN)

calibrate: setup
	$(BIN)/paceline calibrate
	$(BIN)/paceline calibrate --runner local-cpu
	$(BIN)/paceline calibrate --runner local-cpu --against bare-loop
	$(BIN)/paceline calibrate --runner local-cpu --against bare-script
	$(BIN)/paceline calibrate --runner local-cpu --against torch-benchmark

clean:
	rm -rf build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
