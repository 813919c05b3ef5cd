"""Places that launch copies of pinned memory which is overwritten too early, and are let do so."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

VARIABLE = "NPU_SIM_OVERWRITTEN"
# What vllm-ascend 0.30.0rc2 does so, README.md says how: a function of it, and how the line of the
# copy begins.
BY_VLLM_ASCEND = (
    # query_start_loc, by the next step
    ("vllm_ascend/attention/attention_v1.py:AscendAttentionMetadataBuilder.build", ""),
    # num_computed_tokens_cpu, by vLLM's corrections
    (
        "vllm_ascend/worker/model_runner_v1.py:NPUModelRunner._prepare_inputs",
        "computed_token_tensor_cpu = ",
    ),
    # query_start_loc, by its padding
    (
        "vllm_ascend/worker/model_runner_v1.py:NPUModelRunner._prepare_inputs",
        "self.query_start_loc.copy_to_gpu()",
    ),
    (
        "vllm_ascend/worker/model_runner_v1.py:NPUModelRunner._dummy_run",
        "self.query_start_loc.copy_to_gpu()",
    ),
    # num_accepted_tokens of a model with states and prefix caching, by the same step, which then
    # copies it again
    (
        "vllm_ascend/worker/model_runner_v1.py:NPUModelRunner._prepare_inputs",
        "self.num_accepted_tokens.copy_to_gpu()",
    ),
)


def places() -> Iterator[tuple[str, str]]:
    """Yield the end of a file's name, and a line or a function of it."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        for place in filter(None, given.split(",")):
            path, _, name = place.rpartition(":")
            yield path, name
        return
    for function, beginning in BY_VLLM_ASCEND:
        path, _, name = function.partition(":")
        name = name.rpartition(".")[2]
        if not beginning:
            yield path, name
            continue
        for line in lines_of(path, name, beginning):
            yield path, str(line)


def lines_of(path: str, name: str, beginning: str) -> Iterator[int]:
    """Yield the numbers of the lines of an installed package's method that begin so."""
    package, _, inside = path.partition("/")
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return
    within = False
    text = Path(next(iter(spec.submodule_search_locations)), inside).read_text()
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("    def "):
            within = line.startswith(f"    def {name}(")
        if within and line.strip().startswith(beginning):
            yield number
