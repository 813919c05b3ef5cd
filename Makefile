# Two commands for everybody: `make demo` and `make test`. Both set up .venv/ first and reuse it.
PYTHON ?= python3
VENV ?= .venv
TRITON_ASCEND_VENV ?= .venv-triton-ascend
NPU_VENV ?= .venv-npu
# Each starts engines, of one thread and 2 GB.
TESTS_AT_ONCE ?= 2
NPU_TESTS_AT_ONCE ?= $(TESTS_AT_ONCE)
TESTS ?= tests
# A file's engines are shared by its tests, so one process runs the whole file.
PYTEST_TOGETHER = -n $(TESTS_AT_ONCE) --dist loadfile --durations 15

.PHONY: demo test test-npu-sim setup-npu-sim setup-triton-ascend bench lint format clean

demo: $(VENV)/.installed
	$(VENV)/bin/python examples/demo_serve.py

test: $(VENV)/.installed
	$(VENV)/bin/python -m pytest $(PYTEST_TOGETHER) $(TESTS)
	$(if $(filter tests,$(TESTS)),$(MAKE) test-npu-sim)

# The real torch_npu and the real vllm-ascend on a simulated NPU: the simulator's own tests, then
# ours on top of vllm-ascend. Both need nothing but a CPU.
test-npu-sim: $(NPU_VENV)/.installed
	cd tests/npu_sim && $(abspath $(NPU_VENV))/bin/python -m pytest tests
	$(NPU_VENV)/bin/python -m pytest -n $(NPU_TESTS_AT_ONCE) --durations 15 tests/ascend tests/upstream

setup-npu-sim: $(NPU_VENV)/.installed

# Optional: lets the tests of the kernels for Ascend run, see tests/ops/triton_ascend.
setup-triton-ascend: $(TRITON_ASCEND_VENV)/.installed

bench: $(VENV)/.installed
	$(VENV)/bin/vllm-ascend-spec bench serve --output bench-results/serve.json

lint: $(VENV)/.installed
	$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(VENV)/bin/mypy

format: $(VENV)/.installed
	$(VENV)/bin/ruff check --fix . && $(VENV)/bin/ruff format .

clean:
	rm -rf $(VENV) $(NPU_VENV) $(TRITON_ASCEND_VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache

# The C++ backend is built when the package is installed.
$(VENV)/.installed: pyproject.toml .ci/setup ops/build.py $(wildcard ops/cpu/*)
	PYTHON="$(PYTHON)" .ci/setup $(VENV)
	touch $@

$(TRITON_ASCEND_VENV)/.installed: .ci/setup-triton-ascend
	PYTHON="$(PYTHON)" .ci/setup-triton-ascend $(TRITON_ASCEND_VENV)
	touch $@

$(NPU_VENV)/.installed: .ci/setup-npu-sim pyproject.toml tests/npu_sim/pyproject.toml
	PYTHON="$(PYTHON)" .ci/setup-npu-sim $(NPU_VENV)
	touch $@
