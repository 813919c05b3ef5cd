"""The table of methods."""

from __future__ import annotations

import importlib
from dataclasses import fields

import pytest
from vllm.config import SpeculativeConfig

from vllm_ascend_spec.config.checkpoint import CHECKS
from vllm_ascend_spec.config.methods import METHODS, Method
from vllm_ascend_spec.config.options import MAX_DRAFT_TOKENS

# Names that vLLM gives them; docs/structure.md lists the same.
PLANNED = {
    "ngram",
    "suffix",
    "draft_model",
    "eagle",
    "eagle3",
    "mtp",
    "medusa",
    "mlp_speculator",
    "extract_hidden_states",
    "custom_class",
}


def test_methods_have_vllms_names() -> None:
    assert {"eagle", "draft_model"} <= set(METHODS) <= PLANNED


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)
class TestEveryMethod:
    def test_is_found_under_its_name(self, method: Method) -> None:
        assert METHODS[method.name] is method

    def test_names_a_proposer_that_exists(self, method: Method) -> None:
        module, name = method.proposers["cpu"].split(":")
        assert isinstance(getattr(importlib.import_module(module), name), type)

    def test_names_its_proposers_alike_on_every_device(self, method: Method) -> None:
        # That of the NPU can be imported beside vllm-ascend only; tests/ascend runs it.
        folder = f"vllm_ascend_spec.proposers.{method.name}"
        files = {"cpu": f"{folder}.proposer", "npu": f"{folder}.npu"}
        assert set(method.proposers) <= set(files)
        for device, path in method.proposers.items():
            assert path.split(":")[0] == files[device]

    def test_has_a_check_of_its_checkpoint(self, method: Method) -> None:
        assert (method.name in CHECKS) == method.needs_checkpoint

    def test_knows_only_options_that_vllm_knows(self, method: Method) -> None:
        known = {field.name for field in fields(SpeculativeConfig)}  # type: ignore[arg-type]
        assert method.options <= known

    def test_takes_what_it_requires(self, method: Method) -> None:
        assert set(method.required) <= method.options
        assert "num_speculative_tokens" in method.required
        assert "model" in method.required or not method.needs_checkpoint


def test_longest_draft_fits_ascends_attention() -> None:
    # Sixteen rows per request, one of them for the bonus token.
    assert MAX_DRAFT_TOKENS == 15
