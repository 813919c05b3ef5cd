"""From the name of a method to its proposer."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.imports import heavy_imports_of
from vllm_ascend_spec.config.methods import METHODS
from vllm_ascend_spec.config.schema import SpecOptions
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.proposers import registry


def test_unknown_method_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(ConfigError) as raised:
        registry.proposer_class("telepathy", "cpu")
    message = str(raised.value)
    assert message.startswith("speculative_config.method='telepathy': ")
    for method in METHODS:
        assert repr(method) in message


def test_importing_the_registry_imports_neither_torch_nor_vllm() -> None:
    assert heavy_imports_of("vllm_ascend_spec.proposers.registry") == []


def test_method_is_refused_where_a_device_does_not_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    only_cpu = {"cpu": METHODS["eagle"].proposers["cpu"]}
    monkeypatch.setitem(METHODS, "eagle", replace(METHODS["eagle"], proposers=only_cpu))
    with pytest.raises(ConfigError, match="'eagle': not supported on npu; valid: 'draft_model'"):
        registry.proposer_class("eagle", "npu")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_proposer(method: str) -> None:
    proposer = registry.proposer_class(method, "cpu")
    assert isinstance(proposer, type)
    assert proposer.__module__ == METHODS[method].proposers["cpu"].split(":")[0]
    assert callable(proposer.create)


def test_proposers_are_of_the_classes_that_vllms_runner_asks_for() -> None:
    from vllm.v1.spec_decode.draft_model import DraftModelProposer
    from vllm.v1.spec_decode.eagle import EagleProposer

    for method, stock in (("eagle", EagleProposer), ("draft_model", DraftModelProposer)):
        assert issubclass(registry.proposer_class(method, "cpu"), stock)


def test_proposer_is_created_from_the_engines_method(monkeypatch: pytest.MonkeyPatch) -> None:
    class Recorder:
        @classmethod
        def create(cls, *arguments: Any) -> Any:
            return arguments

    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(registry, "proposer_class", lambda *names: asked.append(names) or Recorder)
    config: Any = SimpleNamespace(speculative_config=SimpleNamespace(method="eagle"))
    options = SpecOptions()
    device: Any = SimpleNamespace(type="npu")
    created = registry.create_proposer(config, device, "runner", options)
    assert asked == [("eagle", "npu")]
    assert created == (config, device, "runner", options)
