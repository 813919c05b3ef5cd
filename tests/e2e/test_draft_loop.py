"""The draft called directly computes what its modules compute, on the same KV cache."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from vllm.forward_context import set_forward_context

from tests.zoo import SPECS, WITH_A_LOOP
from vllm_ascend_spec.methods.loops.vllm import direct
from vllm_ascend_spec.methods.loops.vllm.module_steps import ModuleSteps
from vllm_ascend_spec.methods.loops.vllm.step_plan import LastRows
from vllm_ascend_spec.methods.loops.vllm.steps import FirstStep
from vllm_ascend_spec.metrics.acceptance import from_engine
from vllm_ascend_spec.upstream.cpu_attention import WRITES_APART

# MTP layers of MiMo run through their modules.
CALLED_DIRECTLY = [name for name in WITH_A_LOOP if name != "mtp"]
needs_direct = pytest.mark.skipif(
    not WRITES_APART, reason="vLLM 0.23's attention writes keys and values itself"
)


def drafter_of(llm: Any) -> Any:
    return llm.llm_engine.model_executor.driver_worker.worker.model_runner.drafter


class Shadow:
    """Runs every direct forward pass again through the modules, all rows, and compares."""

    def __init__(self, drafter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drafter = drafter
        self.direct = drafter.steps.direct
        self.argmax = self.direct.argmax
        self.layers = self.direct.layers
        self.passes = self.firsts = self.widest = 0
        stock = drafter.steps.draft

        def draft(k: int, first: FirstStep, sampling: Any) -> torch.Tensor:
            whole = copy.copy(first.metadata)
            self.of_all_rows = drafter.build_per_group_and_layer_attn_metadata(whole)[1]
            return stock(k, first, sampling)

        monkeypatch.setattr(drafter.steps, "draft", draft)
        monkeypatch.setattr(drafter.steps, "direct", self)

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        hidden: torch.Tensor | None,
        metadata: dict[str, Any],
        slots: torch.Tensor,
        last: LastRows | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        actual = self.direct.forward(input_ids, positions, hidden, metadata, slots, last)
        inputs = {"input_ids": input_ids, "positions": positions, "inputs_embeds": None}
        if self.drafter.pass_hidden_states_to_model:
            inputs["hidden_states"] = hidden
        names = self.drafter._draft_attn_layer_names
        whole = metadata if last is None else self.of_all_rows
        with set_forward_context(
            whole, self.drafter.vllm_config, slot_mapping=dict.fromkeys(names, slots)
        ):
            expected = ModuleSteps(self.drafter)._run_model(inputs)
        if last is not None:
            expected = tuple(states[last.rows] for states in expected)
            self.firsts += 1
        torch.testing.assert_close(actual, expected, atol=2e-4, rtol=2e-4)
        # Of the target's tokens a head may know a part only; the others are as unlikely as can be.
        logits = self.drafter.model.compute_logits(expected[0])
        logits = logits[:, logits.isfinite().all(dim=0)]
        own = self.direct.logits(actual[0])
        torch.testing.assert_close(own, logits, atol=2e-3, rtol=2e-4)
        known = self.drafter.model.compute_logits(actual[0])
        chosen = known.gather(1, self.argmax(actual[0])[:, None])
        torch.testing.assert_close(chosen[:, 0], known.amax(dim=1), atol=2e-3, rtol=2e-4)
        self.passes += 1
        self.widest = max(self.widest, input_ids.shape[0])
        return actual


@needs_direct
@pytest.mark.parametrize("method", CALLED_DIRECTLY)
def test_direct_equals_modules(
    method: str, make_engine: Any, generate: Any, prompts: list[str], monkeypatch: Any
) -> None:
    llm = make_engine(SPECS[method], max_num_seqs=7)
    shadow = Shadow(drafter_of(llm), monkeypatch)
    generate(llm, prompts[:7], batch=7, max_tokens=24)
    assert shadow.passes >= 3 * shadow.firsts >= 3 * 6
    assert shadow.widest > 100, "the prompts were not seen"


class NoResidual(direct.DirectLayer):
    def forward(self, x: torch.Tensor, *arguments: Any) -> torch.Tensor:
        found = super().forward(x, *arguments)
        return found - (x if found.shape == x.shape else x[arguments[-1]])


class NextPosition(direct.DirectLayer):
    def forward(self, x: torch.Tensor, positions: torch.Tensor, *arguments: Any) -> torch.Tensor:
        return super().forward(x, positions + positions % 2, *arguments)


class LargerProjection(direct.DirectLayer):
    def forward(self, x: torch.Tensor, *arguments: Any) -> torch.Tensor:
        layer = direct.DirectLayer(**{**vars(self), "down": lambda y: self.down(y) * 1.01})
        return layer.forward(x, *arguments)


class RowBefore(direct.DirectLayer):
    def forward(self, x: torch.Tensor, *arguments: Any) -> torch.Tensor:
        *others, rows = arguments
        if isinstance(rows, torch.Tensor) and len(others) == 4:
            rows = (rows - 1).clamp(min=0)
        return super().forward(x, *others, rows)


FAULTS = {
    "a layer's input is not carried past it": NoResidual,
    "odd positions are taken for the next": NextPosition,
    "the last projection is 1% too large": LargerProjection,
    "the row before the last accepted one is drafted from": RowBefore,
}


@needs_direct
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("method", CALLED_DIRECTLY)
def test_a_wrong_kernel_would_be_noticed(
    method: str, fault: str, make_engine: Any, generate: Any, prompts: list[str], monkeypatch: Any
) -> None:
    """Negative controls of the test above: the last layer has a fault."""
    llm = make_engine(SPECS[method], max_num_seqs=7)
    drafter = drafter_of(llm)
    *others, last = drafter.steps.direct.layers
    monkeypatch.setattr(drafter.steps.direct, "layers", [*others, FAULTS[fault](**vars(last))])
    Shadow(drafter, monkeypatch)
    with pytest.raises(AssertionError, match="not close"):
        generate(llm, prompts[:1], max_tokens=8)
    monkeypatch.undo()
    drop_requests(llm)


def drop_requests(llm: Any) -> None:
    """The engine is shared; a step that failed leaves its request behind."""
    core = llm.llm_engine
    for request in list(core.output_processor.request_states):
        core.abort_request([request], internal=True)
    while core.has_unfinished_requests():
        core.step()


@pytest.mark.parametrize("method", WITH_A_LOOP)
def test_all_loops_accept_as_much(
    method: str, make_engine: Any, generate: Any, prompts: list[str], monkeypatch: Any
) -> None:
    """Stock loop, ours through modules, ours called directly: the same drafts but for rounding."""
    rates = []
    for options, modules in (({}, False), ({}, True), ({"draft_loop": "stock"}, False)):
        llm = make_engine(SPECS[method], additional_config={"ascend_spec": options})
        if modules:
            monkeypatch.setattr(drafter_of(llm), "steps", ModuleSteps(drafter_of(llm)))
        before = from_engine(llm.get_metrics())
        generate(llm, prompts[:16])
        rates.append((from_engine(llm.get_metrics()) - before).rate)
        monkeypatch.undo()
    assert rates[0] == pytest.approx(rates[1], rel=0.02)
    assert rates[0] == pytest.approx(rates[2], rel=0.02)


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float16", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("method", WITH_A_LOOP)
def test_half_precision(
    method: str, dtype: str, make_engine: Any, generate: Any, prompts: list[str]
) -> None:
    """Greedy answers may part at near-ties here (docs/losslessness.md); most begin alike."""
    plain = generate(make_engine(dtype=dtype), prompts[:8], max_tokens=8)
    llm = make_engine(SPECS[method], dtype=dtype)
    before = from_engine(llm.get_metrics())
    speculative = generate(llm, prompts[:8], max_tokens=8)
    same = sum(a.token_ids == b.token_ids for a, b in zip(plain, speculative, strict=True))
    assert same >= 6
    assert (from_engine(llm.get_metrics()) - before).rate > 0.2
