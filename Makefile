# make demo   train an agent on the embedded shapes, compare it with the heuristics, draw the result
# make test   lint, the documentation, then the test suite
# make docs   build the documentation in site/
#
# Each creates .venv if it is missing. Variables: PYTHON (3.11 or newer), WORKERS (number of test
# processes), TORCH_INDEX_URL (another source of torch wheels, for example
# https://download.pytorch.org/whl/cpu for the build without CUDA).

PYTHON ?= python3
WORKERS ?= 2
TORCH_INDEX_URL ?=
TORCH := torch==2.13.0
# Installed beside CPU builds of torch; CUDA builds bring their own version.
TRITON := triton==3.9.0
# The versions that CUDA builds of torch 2.10 to 2.13 bring; tests compile the kernels under each of
# them, without a GPU.
TRITONS := 3.6.0 3.7.1
EXTRAS := fast,mesh,viz,excel,physics,sb3,optuna,onnx,dev,docs

# The public test data, if it lies beside the checkout; without it, tests that need it are skipped.
ifneq ($(wildcard ../shared/data/manifest.json),)
export PACKING_DATA ?= $(abspath ../shared/data)
endif

# Tools without which tests fail instead of being skipped; .ci/run adds a C++ compiler.
ifeq ($(shell uname -s),Linux)
export PACKING_TESTS_REQUIRE ?= triton
TRITON_STAMPS = $(TRITONS:%=$(VENV)/triton/%/installed.stamp)
endif

# Waiting threads sleep, because spinning ones would take the cores from other test processes.
export OMP_WAIT_POLICY := PASSIVE
# Bytecode is kept; without it, every process that a test starts would compile the sources again.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed.stamp
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt
NOT_IN_CI := not slow and not gpu
# The tests in which shapes and dtypes are checked against annotations, for up to twice the time,
# and the modules that are checked. Left out are the compiled kernels, which cannot be wrapped, and
# modules that check their arguments themselves (public operations, parameters, generators).
SHAPES := tests/core tests/items tests/generators tests/golden tests/kernels/test_spaces_kernels.py
CHECKED := packing_env.kernels.layout,packing_env.kernels.drop.eager,packing_env.kernels.support.eager,packing_env.kernels.spaces.eager,packing_env.core,packing_env.items,packing_env.generators.base,packing_env.generators.catalogue_mix

.PHONY: demo docs test lint ratios test-tracing test-shapes test-main test-slow install clean
.DELETE_ON_ERROR:
.NOTPARALLEL:

install: $(STAMP)

$(BIN)/python:
	@command -v $(PYTHON) > /dev/null || { echo "make: '$(PYTHON)' not found; install Python 3.11 or newer, or: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $$($(PYTHON) --version) is too old; this needs Python 3.11 or newer: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "make: cannot create a virtual environment (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }

# torch is installed first and alone: it is the largest, and the other packages accept this version.
$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(VENV) holds $$($(BIN)/python --version); this needs Python 3.11 or newer: remove $(VENV) and try again" >&2; exit 1; }
	@echo "installing $(TORCH) and the project into $(VENV) ..."
	@$(PIP_INSTALL) $(if $(TORCH_INDEX_URL),--extra-index-url $(TORCH_INDEX_URL)) $(TORCH)
	@$(PIP_INSTALL) --quiet -e '.[$(EXTRAS)]'
	@if $(BIN)/python -c 'import sys, torch; sys.exit(not (sys.platform == "linux" and torch.version.cuda is torch.version.hip is None))'; then \
	  $(PIP_INSTALL) --quiet --no-deps $(TRITON); fi
	@touch $@

$(VENV)/triton/%/installed.stamp: | $(BIN)/python
	@echo "installing Triton $* for the tests into $(@D) ..."
	@rm -rf $(@D)
	@$(PIP_INSTALL) --quiet --no-deps --target $(@D) triton==$*
	@touch $@

demo: $(STAMP)
	$(BIN)/packing train experiment=demo

# Every part runs even if one before it fails; the last lines are the summary of the main suite. The
# ratios need one core, and a minute to compile kernels, so lint and documentation run beside them.
test: $(STAMP)
	@failed=''; mkdir -p build; \
	$(MAKE) --no-print-directory ratios > build/ratios.log 2>&1 & ratios=$$!; \
	for part in lint docs; do \
	  $(MAKE) --no-print-directory $$part || failed="$$failed $$part"; \
	done; \
	wait $$ratios || failed="$$failed ratios"; cat build/ratios.log; \
	for part in test-tracing test-shapes test-main; do \
	  $(MAKE) --no-print-directory $$part || failed="$$failed $$part"; \
	done; \
	if [ -n "$$failed" ]; then echo "failed:$$failed" >&2; exit 1; fi

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy benchmarks
	$(BIN)/lint-imports
	$(BIN)/python .ci/house.py

# Strict: a broken link, or a name that the API reference cannot find, fails. No network is used.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Compare some speed ratios with the committed ones. A ratio that fell gives a line "warning: ...",
# but no failure.
ratios: $(STAMP)
	$(BIN)/python benchmarks/ratios.py

# In separate processes, because the shape checker of the other tests breaks fullgraph compilation.
test-tracing: $(STAMP)
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -q --durations=20 -n $(WORKERS) --dist worksteal \
	  tests/tracing -m '$(NOT_IN_CI)'

# One thread per process, in torch and in numba, because the processes share the cores.
test-shapes: $(STAMP)
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -q --tb=short --durations=20 -n $(WORKERS) --dist worksteal \
	  $(SHAPES) -m '$(NOT_IN_CI)' --jaxtyping-packages=$(CHECKED),beartype.beartype

test-main: $(STAMP) $(TRITON_STAMPS)
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -q --tb=short --durations=40 -n $(WORKERS) --dist worksteal \
	  --ignore tests/tracing $(addprefix --ignore ,$(SHAPES)) -m '$(NOT_IN_CI)'

test-slow: $(STAMP)
	$(BIN)/python -m pytest -q -m 'slow and not gpu'

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist site
