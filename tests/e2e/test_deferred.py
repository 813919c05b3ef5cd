"""A draft that reads later what was written meanwhile drafts as if it had read it at once."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.e2e.drafts import watch
from tests.engines import assert_same, token_ids
from tests.zoo import EVERY
from vllm_ascend_spec.control.adaptive_k import PAYS, KChoice
from vllm_ascend_spec.methods.loops.vllm.deferred_kv import DeferredKVWrites
from vllm_ascend_spec.methods.loops.vllm.direct import DirectLayer

ADAPTIVE = {"ascend_spec": {"draft_length": "adaptive"}}
# Longer pauses than a pass may wait, and shorter ones.
LENGTHS = [3, 3, *[0] * 20, 3, 0, 3, *[0] * 5]


@pytest.mark.parametrize("method", ["eagle", "eagle3"])
def test_drafts_are_accepted_as_often(
    method: str,
    make_engine: Any,
    generate: Any,
    prompts: list[str],
    expect: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    llm = make_engine(EVERY[method], additional_config=ADAPTIVE)
    core = llm.llm_engine
    drafter = core.model_executor.driver_worker.worker.model_runner.drafter
    steps = drafter.steps
    chooser = core.engine_core.engine_core.scheduler.chooser
    passes = [0]
    forward = steps.direct.forward

    def counted(*arguments: Any, **more: Any) -> Any:
        passes[0] += 1
        return forward(*arguments, **more)

    monkeypatch.setattr(steps.direct, "forward", counted)

    def accepted(reads: DeferredKVWrites | None) -> int:
        turn = itertools.cycle(LENGTHS)
        monkeypatch.setattr(chooser, "choose", lambda _: KChoice(next(turn), PAYS))
        monkeypatch.setattr(steps, "deferred", reads)
        passes[0] = 0
        with watch(llm) as seen:
            assert_same(token_ids(generate(llm, prompts[:24])), token_ids(expect(prompts))[:24])
        return int(seen.acceptance.num_accepted_tokens)

    assert isinstance(steps.deferred, DeferredKVWrites)
    later, of_later = accepted(steps.deferred), passes[0]
    at_once, of_at_once = accepted(None), passes[0]
    # The last bits of what many rows at a time come to may differ.
    assert later == pytest.approx(at_once, rel=0.02)
    assert of_later < 0.6 * of_at_once
    # Negative control: what was never read is missed.
    assert accepted(DeferredKVWrites(lambda _: None)) < 0.8 * at_once


def test_a_pass_without_drafts_only_writes_in_the_last_layer(
    make_engine: Any, generate: Any, prompts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A draft of several layers cannot wait; nothing reads what its last layer would attend to."""
    # A draft of two layers; whatever else it can do, it also drafts token by token.
    spec = {**EVERY["draft_model"], "model": EVERY["pard"]["model"]}
    llm = make_engine(spec, additional_config=ADAPTIVE)
    core = llm.llm_engine
    direct = core.model_executor.driver_worker.worker.model_runner.drafter.steps.direct
    chooser = core.engine_core.engine_core.scheduler.chooser
    attended = dict.fromkeys((layer.attention.layer_name for layer in direct.layers), 0)
    attend = DirectLayer._attend

    def counted(self: DirectLayer, *arguments: Any) -> Any:
        attended[self.attention.layer_name] += 1
        return attend(self, *arguments)

    monkeypatch.setattr(DirectLayer, "_attend", counted)
    monkeypatch.setattr(chooser, "choose", lambda _: KChoice(0, PAYS))
    generate(llm, prompts[:2], max_tokens=8)
    *lower, last = attended.values()
    assert lower
    assert all(lower)
    assert last == 0
