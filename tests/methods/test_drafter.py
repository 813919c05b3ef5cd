"""From the name of a method to its drafter."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.imports import heavy_imports_of
from tests.methods.engine import drafter_of
from tests.speculation import make_speculation
from vllm_ascend_spec.methods.drafter import create_drafter
from vllm_ascend_spec.methods.registry import BUILT_IN

# What the runner calls of every drafter, see methods/drafter.py.
HOOKS = ("create", "load_model", "warm_up", "dummy_run", "draft", "take_last_draft_probs")


def test_importing_it_imports_neither_torch_nor_vllm() -> None:
    assert heavy_imports_of("vllm_ascend_spec.methods.drafter") == []


@pytest.mark.parametrize("method", BUILT_IN)
def test_every_method_has_a_drafter_with_all_hooks(method: str) -> None:
    drafter = drafter_of(method, "vllm")
    assert [name for name in HOOKS if not callable(getattr(drafter, name, None))] == []
    assert hasattr(drafter, "drafts_to_the_end")
    assert hasattr(drafter, "wants_aux_hidden_states")


def test_drafters_are_of_the_classes_that_vllms_runner_asks_for() -> None:
    from vllm.v1.spec_decode.draft_model import DraftModelProposer
    from vllm.v1.spec_decode.eagle import EagleProposer

    for method, stock in (("eagle", EagleProposer), ("draft_model", DraftModelProposer)):
        assert issubclass(drafter_of(method, "vllm"), stock)


def test_a_joined_class_is_made_once_and_says_of_what() -> None:
    drafter = drafter_of("eagle", "vllm")
    assert drafter_of("eagle", "vllm") is drafter
    assert drafter.__name__ == "EagleVllmDrafter"
    assert all(path in (drafter.__doc__ or "") for path in BUILT_IN["eagle"].drafters["vllm"])


class Anything:
    @classmethod
    def create(cls, engine: Any) -> Any:
        return cls, engine


class Odd(Anything):
    pass


def test_drafter_is_created_from_what_was_resolved() -> None:
    """Not from vLLM's config, which may call the method by another name."""
    paths = (f"{__name__}:Anything",)
    speculation = make_speculation("custom_class", drafter=paths, family="ascend")
    engine: Any = SimpleNamespace(speculation=speculation)
    assert create_drafter(engine) == (Anything, engine)


@pytest.mark.parametrize("model_type", ["odd", "usual"])
def test_a_draft_with_a_proposer_of_its_own_gets_that(model_type: str) -> None:
    """What vLLM says of the draft decides: its folder may not have been there before."""
    odd = (f"{__name__}:Odd",)
    speculation = make_speculation(
        "mtp",
        drafter=(f"{__name__}:Anything",),
        drafters_by_type={"odd": odd},
        family="vllm",
    )
    draft = SimpleNamespace(hf_config=SimpleNamespace(model_type=model_type))
    spec = SimpleNamespace(draft_model_config=draft)
    vllm_config = SimpleNamespace(speculative_config=spec)
    engine: Any = SimpleNamespace(speculation=speculation, vllm_config=vllm_config)
    assert create_drafter(engine)[0] is (Odd if model_type == "odd" else Anything)
