"""The table of methods."""

from __future__ import annotations

import importlib
from dataclasses import fields
from itertools import chain

import pytest
from vllm.config import SpeculativeConfig

from tests.imports import heavy_imports_of
from vllm_ascend_spec.config.method import Method
from vllm_ascend_spec.config.options import MAX_DRAFT_TOKENS, OURS
from vllm_ascend_spec.devices import cpu, cuda, npu
from vllm_ascend_spec.methods.registry import BUILT_IN as METHODS
from vllm_ascend_spec.upstream.limits import WITHOUT_OPTIONS

# Names that vLLM gives them; docs/structure.md lists the same.
PLANNED = {
    "ngram",
    "suffix",
    "draft_model",
    "eagle",
    "eagle3",
    "dflash",
    "dspark",
    "mtp",
    "medusa",
    "mlp_speculator",
    "extract_hidden_states",
    "custom_class",
}


# A method of ours that vLLM does not have.
OWN = {"hybrid"}


def test_methods_have_vllms_names() -> None:
    assert {"eagle", "draft_model"} <= set(METHODS) <= PLANNED | OWN


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)
class TestEveryMethod:
    def test_is_found_under_its_name(self, method: Method) -> None:
        assert METHODS[method.name] is method

    def test_names_drafters_that_exist(self, method: Method) -> None:
        # Those of the NPU can be imported beside vllm-ascend only; tests/ascend runs them.
        of_types = (drafters["vllm"] for drafters in method.drafters_by_type.values())
        for path in chain(method.drafters["vllm"], *of_types):
            module, name = path.split(":")
            assert isinstance(getattr(importlib.import_module(module), name), type)

    def test_is_there_for_every_family(self, method: Method) -> None:
        assert set(method.drafters) == {"vllm", "ascend"}
        assert all(method.drafters.values())

    def test_has_a_check_of_its_checkpoint(self, method: Method) -> None:
        assert (method.check_checkpoint is not None) == method.needs_checkpoint

    def test_imports_nothing_heavy(self, method: Method) -> None:
        assert heavy_imports_of(f"vllm_ascend_spec.methods.{method.name}") == []

    def test_knows_only_options_that_vllm_knows(self, method: Method) -> None:
        known = {field.name for field in fields(SpeculativeConfig)}  # type: ignore[arg-type]
        assert method.options <= known | OURS | WITHOUT_OPTIONS.keys()

    def test_takes_what_it_requires(self, method: Method) -> None:
        assert set(method.required) <= method.options
        assert "num_speculative_tokens" in method.required
        has_model = "model" in method.required or method.is_in_target
        assert has_model or not method.needs_checkpoint


def test_longest_draft_fits_ascends_attention() -> None:
    # Sixteen rows per request, one of them for the bonus token.
    assert npu.DEVICE.max_drafts == 15
    assert cpu.DEVICE.max_drafts == cuda.DEVICE.max_drafts == MAX_DRAFT_TOKENS
