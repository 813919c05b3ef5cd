"""How many graphs ``check`` says an engine has: as many as the engine says at its start."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from vllm_ascend_spec.cli.check_capture import capture_of_engine
from vllm_ascend_spec.config import resolved
from vllm_ascend_spec.config.capture import set_sizes_by_k
from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.config.graph_estimates import capture_within_streams, estimates_of, layers_of
from vllm_ascend_spec.config.resolved import SpecConfig
from vllm_ascend_spec.graphs.capture import Capture, Wanted
from vllm_ascend_spec.graphs.tiers import tiers_of_drafts
from vllm_ascend_spec.platform.capture import estimated

DECODE, MIXED = (4, 8, 16), (64, 128)


def speculation(draft_loop: str | None = "auto", **options: Any) -> SpecConfig:
    return SpecConfig(
        device=None,
        family=None,
        method="mtp",
        vllm_method="mtp",
        drafter=(),
        max_k=3,
        draft_loop=draft_loop,
        **options,
    )


def engine(asked: SpecConfig | None, *, draft_layers: int = 2) -> Any:
    """Return what stands for vLLM's configuration of an engine of 4 requests."""
    spec = SimpleNamespace(
        draft_model_config=SimpleNamespace(
            hf_config=SimpleNamespace(num_hidden_layers=draft_layers)
        )
    )
    found = SimpleNamespace(
        model_config=SimpleNamespace(
            hf_text_config=SimpleNamespace(num_hidden_layers=10, hidden_size=64)
        ),
        speculative_config=None if asked is None else spec,
        parallel_config=SimpleNamespace(
            tensor_parallel_size=1, data_parallel_size=1, enable_expert_parallel=False
        ),
        scheduler_config=SimpleNamespace(max_num_seqs=4),
        compilation_config=SimpleNamespace(
            cudagraph_mode=SimpleNamespace(name="FULL_AND_PIECEWISE"),
            cudagraph_capture_sizes=[*DECODE, *MIXED],
        ),
    )
    if asked is not None:
        resolved.attach(found, asked)
    return found


def checked(asked: SpecConfig | None, built: Any) -> int:
    record = capture_of_engine(None, asked, EngineOptions(), built, is_elsewhere=False)
    return record["graphs"]


@pytest.mark.parametrize(
    ("draft_loop", "given", "layers"), [("auto", 2, 2), ("auto", 0, 1), (None, 32, 0)]
)
def test_the_layers_of_a_draft_are_those_of_its_loop(
    draft_loop: str | None, given: int, layers: int
) -> None:
    asked = speculation(draft_loop)
    built = engine(asked, draft_layers=given)
    assert layers_of(built, asked) == (10, layers)
    assert checked(asked, built) == 8
    found = estimates_of(built, asked, "FULL_AND_PIECEWISE", [*DECODE, *MIXED], {3: DECODE})
    assert found is not None
    assert found.streams == 8 * (11 + (layers and layers + 1))


def test_only_sizes_of_decode_batches_are_captured_both_ways() -> None:
    asked = speculation()
    assert checked(asked, engine(asked)) == 2 * len(DECODE) + len(MIXED)
    # Without speculation a batch of 4 requests has 4 tokens.
    assert checked(None, engine(None)) == 1 + 5


@pytest.mark.parametrize(
    ("layers", "graphs"), [(10, 8), (250, 5)], ids=["fits", "does-not-fit-an-old-cann"]
)
def test_there_are_more_graphs_than_stock_where_an_old_device_has_streams_for_them(
    layers: int, graphs: int
) -> None:
    """With 250 layers a graph takes 254 of 1920 streams."""
    asked = speculation()
    built = engine(asked)
    built.model_config.hf_text_config.num_hidden_layers = layers
    tiers = tiers_of_drafts(8, [3])
    wanted = Wanted(mode="FULL_DECODE_ONLY", max_num_seqs=8, tiers=tiers, stock=(4, 8, 16, 24, 32))
    assert len(capture_within_streams(wanted, built, asked).decode) == graphs


@pytest.mark.parametrize("changes", [False, True], ids=["one-k", "by-k"])
def test_an_engine_says_the_same(changes: bool) -> None:
    asked = speculation(draft_lengths=(0, 1, 3) if changes else None)
    built = engine(asked)
    by_k: dict[int, tuple[int, ...]] = {3: DECODE}
    if changes:
        by_k = {0: (4,), 1: (4, 8), 3: (16,)}
        set_sizes_by_k(built.compilation_config, by_k)
    found = checked(asked, built)
    # Two K with a graph of four tokens have two graphs.
    assert found == 8 + changes
    capture = Capture(DECODE, MIXED, "1/n", 0.0, decode_by_k=by_k)
    told = estimated(capture, built, "FULL_AND_PIECEWISE")
    assert told is not None
    # With several K the draft has a graph for each number of draft steps.
    streams = found * (11 + (2 * 2 if changes else 2) + 1)
    assert told.startswith(f"{found} graphs; ")
    assert f"estimated to take {streams} of about 1920 streams" in told
