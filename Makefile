# Two commands for everybody: `make demo` and `make test`. Both set up .venv/ first and reuse it.
PYTHON ?= python3
VENV ?= .venv
TRITON_ASCEND_VENV ?= .venv-triton-ascend
TESTS ?= tests

.PHONY: demo test setup-triton-ascend bench lint format clean

demo: $(VENV)/.installed
	$(VENV)/bin/python examples/demo_serve.py

test: $(VENV)/.installed
	$(VENV)/bin/python -m pytest $(TESTS)

# Optional: lets the tests of the kernels for Ascend run, see tests/ops/triton_ascend.
setup-triton-ascend: $(TRITON_ASCEND_VENV)/.installed

bench: $(VENV)/.installed
	$(VENV)/bin/vllm-ascend-spec bench serve --output bench-results/serve.json

lint: $(VENV)/.installed
	$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(VENV)/bin/mypy

format: $(VENV)/.installed
	$(VENV)/bin/ruff check --fix . && $(VENV)/bin/ruff format .

clean:
	rm -rf $(VENV) $(TRITON_ASCEND_VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache

# The C++ backend is built when the package is installed.
$(VENV)/.installed: pyproject.toml .ci/setup ops/build.py $(wildcard ops/cpu/*)
	PYTHON="$(PYTHON)" .ci/setup $(VENV)
	touch $@

$(TRITON_ASCEND_VENV)/.installed: .ci/setup-triton-ascend
	PYTHON="$(PYTHON)" .ci/setup-triton-ascend $(TRITON_ASCEND_VENV)
	touch $@
