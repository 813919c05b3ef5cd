"""Trees of drafts: how they are asked for, what is refused, and what is offered instead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from transformers import PretrainedConfig
from vllm.transformers_utils.config import uses_mrope

from tests.zoo import EVERY, TARGET, ZOO
from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.config.examine import examine
from vllm_ascend_spec.config.problems import Examined
from vllm_ascend_spec.config.tree_rules import has_mrope
from vllm_ascend_spec.config.tree_shape import comb
from vllm_ascend_spec.devices import cpu, cuda
from vllm_ascend_spec.methods.registry import BUILT_IN
from vllm_ascend_spec.upstream.limits import NO_TREES

pytestmark = pytest.mark.skipif(NO_TREES is not None, reason=str(NO_TREES))
OPTION, PATHS = "additional_config.ascend_spec.tree", "speculative_config.speculative_token_tree"
CPU, CUDA = (EngineOptions(device=device.DEVICE) for device in (cpu, cuda))
WITHOUT_TREES = replace(cuda.DEVICE, max_tree_drafts=None)
SMALL = [(0,), (1,), (0, 0), (0, 1)]


def found(
    method: str = "eagle3",
    section: dict[str, Any] | None = None,
    engine: EngineOptions = CPU,
    model: str = TARGET,
    **spec: Any,
) -> Examined:
    asked = {k: v for k, v in EVERY[method].items() if k != "num_speculative_tokens"}
    additional = {"ascend_spec": section or {}}
    return examine(model, {**asked, **spec}, additional, engine, methods=BUILT_IN)


@pytest.mark.parametrize("value", [SMALL, str(SMALL), [list(path) for path in SMALL]])
def test_paths_as_in_vllms_old_documents(value: Any) -> None:
    resolved = found(speculative_token_tree=value).resolved()
    assert resolved is not None
    assert resolved.tree == ((0,), (0, 0), (1,), (0, 1))
    assert resolved.max_k == 4
    assert resolved.sources["tree"] == PATHS
    assert (resolved.rule, resolved.seeds_for) == ("seeded", "all")
    assert resolved.draft_sample_method == "greedy"
    assert resolved.draft_length == "fixed"
    assert not resolved.shapes_tree


def test_a_comb() -> None:
    resolved = found(section={"tree": "5x3"}).resolved()
    assert resolved is not None
    assert resolved.tree == comb(5, 3)
    assert resolved.max_k == 15
    assert resolved.sources["tree"] == resolved.sources["max_k"] == OPTION


@pytest.mark.parametrize("method", ["eagle", "eagle3", "mtp", "draft_model", "medusa"])
def test_a_number_is_shaped_by_what_is_accepted(method: str) -> None:
    resolved = found(method, {"tree": 8}).resolved()
    assert resolved is not None
    assert resolved.tree is not None
    assert len(resolved.tree) == resolved.max_k == 8
    assert resolved.shapes_tree
    # There are three heads.
    assert method != "medusa" or max(map(len, resolved.tree)) <= 4


def test_a_shape_that_is_learned_has_a_draft_beside_the_chain() -> None:
    """Three of the likeliest drafts are a chain, which tells nothing of what is beside it."""
    on_cpu, on_gpu = (
        found(section={"tree": 3}, engine=engine).resolved() for engine in (CPU, CUDA)
    )
    assert on_cpu is not None
    assert on_gpu is not None
    assert on_cpu.tree == ((0,), (0, 0), (1,))
    # There the host would have to wait to learn.
    assert not on_gpu.shapes_tree
    assert on_gpu.tree == ((0,), (0, 0), (0, 0, 0))


@pytest.mark.parametrize("method", ["ngram", "suffix"])
def test_trees_that_are_found_in_the_text_have_a_size_alone(method: str) -> None:
    resolved = found(method, {"tree": 12}).resolved()
    assert resolved is not None
    assert resolved.tree is None
    assert resolved.has_trees
    assert resolved.max_k == 12


@pytest.mark.parametrize(
    ("method", "tree", "lengths", "longest_chain"),
    [
        # Chains up to the principal one, half of what is beside it, and all of it.
        ("eagle3", "5x3", (0, 1, 2, 3, 5, 10, 15), 5),
        ("eagle3", "2x2", (0, 1, 2, 3, 4), 2),
        ("mtp", "1x4", (0, 1, 2, 4), 1),
        ("eagle3", 1, (0, 1), 1),
        ("medusa", 12, (0, 1, 2, 3, 4, 8, 12), 4),
        # Those that are found have no chain that is known before.
        ("ngram", 12, (0, 1, 2, 3, 6, 12), 1),
    ],
)
def test_what_is_chosen_from_where_k_is_adaptive(
    method: str, tree: int | str, lengths: tuple[int, ...], longest_chain: int
) -> None:
    resolved = found(method, {"tree": tree, "draft_length": "adaptive"}).resolved()
    assert resolved is not None
    assert resolved.draft_lengths == lengths
    assert resolved.longest_chain == longest_chain
    assert resolved.draft_length == "adaptive"
    assert resolved.sources["tree"] == OPTION
    assert (resolved.rule, resolved.seeds_for) == ("seeded", "all")


def test_each_choice_has_draft_graphs_of_its_own() -> None:
    """A chain and a tree may be equally deep."""
    adaptive = found(section={"tree": "5x3", "draft_length": "adaptive"}).resolved()
    assert adaptive is not None
    assert adaptive.lengths_of_graphs == (1, 2, 3, 5, 10, 15)
    fixed = found(section={"tree": "5x3"}).resolved()
    assert fixed is not None
    assert fixed.lengths_of_graphs == (1, 15)
    chain = found(num_speculative_tokens=3, section={"draft_length": "fixed"}).resolved()
    assert chain is not None
    assert (chain.lengths_of_graphs, chain.longest_chain) == ((), 3)


def test_the_same_number_may_be_said_twice() -> None:
    assert not found(section={"tree": "3x2"}, num_speculative_tokens=6).problems


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a missing parent": (
        {"speculative_token_tree": [(0,), (1, 0)]},
        PATHS,
        "lacks (1,), which others follow; valid: [(0,), (1,), (1, 0)]",
    ),
    "two equal paths": (
        {"speculative_token_tree": [(0,), (1,), (0,)]},
        PATHS,
        "has (0,) twice; valid: [(0,), (1,)]",
    ),
    "no paths": ({"speculative_token_tree": "(0,"}, PATHS, "valid: a list of up to 64 paths"),
    "an empty list": ({"speculative_token_tree": []}, PATHS, "valid: a list of up to 64 paths"),
    "a rank below 0": (
        {"speculative_token_tree": [(0, -1)]},
        PATHS,
        "valid: a list of up to 64 paths",
    ),
    "no size": ({"section": {"tree": "5by3"}}, OPTION, "valid: a number of drafts up to 64"),
    "no draft": ({"section": {"tree": 0}}, OPTION, "valid: a number of drafts up to 64"),
    "more rows than the device takes": ({"section": {"tree": 64}}, OPTION, "valid: tree=63"),
    "more rows than the device takes, as a comb": (
        {"section": {"tree": "8x8"}},
        OPTION,
        "has 64 drafts, and the CPU verifies up to 63; valid: tree=63",
    ),
    "another number of drafts": (
        {"section": {"tree": "5x3"}, "num_speculative_tokens": 5},
        OPTION,
        "has 15 drafts and contradicts num_speculative_tokens=5; leave that out, or write tree=5",
    ),
    "two trees": (
        {"section": {"tree": 4}, "speculative_token_tree": SMALL},
        PATHS,
        "contradicts 'tree'; give one of the two",
    ),
    "a method that drafts chains": (
        {"method": "mlp_speculator", "section": {"tree": 4}},
        OPTION,
        "not possible with method 'mlp_speculator', which drafts chains; leave it out",
    ),
    "a shape for what is found": (
        {"method": "ngram", "section": {"tree": "3x2"}},
        OPTION,
        "method 'ngram' finds its trees in the text; valid: tree=6",
    ),
    "deeper than there are heads": (
        {"method": "medusa", "section": {"tree": "7x1"}},
        OPTION,
        "is 7 drafts deep, and this draft makes",
    ),
    "a K by batch size": (
        {"section": {"tree": 4}, "num_speculative_tokens_per_batch_size": [[1, 8, 2]]},
        OPTION,
        "not possible with a K by batch size yet; leave one out",
    ),
    "a K by batch size beside one that is chosen": (
        {
            "section": {"tree": 4, "draft_length": "adaptive"},
            "num_speculative_tokens_per_batch_size": [[1, 8, 2]],
        },
        "additional_config.ascend_spec.draft_length",
        "contradicts speculative_config.num_speculative_tokens_per_batch_size",
    ),
    "a choice of more drafts than the tree has": (
        {"section": {"tree": "5x3", "draft_length": "adaptive", "draft_lengths": [0, 5, 16]}},
        "additional_config.ascend_spec.draft_lengths",
        "valid: numbers from 0 to num_speculative_tokens=15",
    ),
    "a limit on the batch": (
        {"section": {"tree": 4}, "disable_by_batch_size": 4},
        OPTION,
        "not possible with a K by batch size yet; leave one out",
    ),
    "another rule": (
        {"section": {"tree": 4, "verify_rule": "block"}},
        OPTION,
        "not possible with a verify_rule other than 'seeded'",
    ),
    "synthetic acceptance": (
        {
            "section": {"tree": 4},
            "rejection_sample_method": "synthetic",
            "synthetic_acceptance_length": 2,
        },
        OPTION,
        "not possible with a rejection_sample_method other than 'standard'",
    ),
    "drafts drawn at random": (
        {"section": {"tree": 4}, "draft_sample_method": "probabilistic"},
        OPTION,
        "not possible with sampled drafts",
    ),
    "vLLM's loop": (
        {"section": {"tree": 4, "draft_loop": "stock"}},
        OPTION,
        "not possible with draft_loop='stock', which makes chains; leave it out",
    ),
    "a KV connector": (
        {
            "section": {"tree": 4},
            "engine": EngineOptions(device=cpu.DEVICE, kv_connector="SharedStorageConnector"),
        },
        OPTION,
        "not possible with a KV connector yet",
    ),
    "another device": (
        {"section": {"tree": 4}, "engine": EngineOptions(device=WITHOUT_TREES)},
        OPTION,
        "not possible with an NVIDIA GPU yet; leave it out",
    ),
    "more rows than a GPU takes": (
        {"section": {"tree": 64}, "engine": CUDA},
        OPTION,
        "an NVIDIA GPU verifies up to 63; valid: tree=63",
    ),
    "another attention on a GPU": (
        {"section": {"tree": 4}, "engine": replace(CUDA, attention_backend="FLASH_ATTN")},
        "--attention-backend='FLASH_ATTN'",
        f"not possible with {OPTION}=4, whose attention is 'TRITON_ATTN'; leave it out",
    ),
    "a quantized cache on a GPU": (
        {"section": {"tree": 4}, "engine": replace(CUDA, kv_cache_dtype="fp8_e4m3")},
        OPTION,
        "not possible with kv_cache_dtype='fp8_e4m3' yet; leave one out",
    ),
    "latent attention": (
        {"section": {"tree": 4}, "model": str(ZOO / "target-deepseek"), "method": "ngram"},
        OPTION,
        "not possible with multi-head latent attention yet; leave it out",
    ),
    "layers with a state": (
        {"section": {"tree": 4}, "model": str(ZOO / "target-qwen35"), "method": "ngram"},
        OPTION,
        "not possible with layers that keep a state yet; leave it out",
    ),
    "positions of images": (
        {"section": {"tree": 4}, "model": str(ZOO / "target-qwen25-vl"), "method": "ngram"},
        OPTION,
        "not possible with positions of images (M-RoPE) yet; leave it out",
    ),
}


def as_transformers_has(config: dict[str, Any]) -> PretrainedConfig:
    """Return a config of which nothing is converted but configs inside it."""
    found = PretrainedConfig()
    for name, value in config.items():
        is_config = name.endswith("_config")
        setattr(found, name, as_transformers_has(value) if is_config else value)
    return found


@pytest.mark.parametrize(
    "config",
    [
        {"rope_scaling": {"mrope_section": [4, 6, 6]}},
        {"rope_parameters": {"xdrope_section": [4, 4, 4, 4]}},
        {"text_config": {"rope_parameters": {"full_attention": {"mrope_section": [4, 6, 6]}}}},
        {"mrope_section": [4, 6, 6]},
        {"thinker_config": {"text_config": {"rope_scaling": {"mrope_section": [4, 6, 6]}}}},
    ],
)
def test_positions_of_images_are_found_where_vllm_finds_them(config: dict[str, Any]) -> None:
    assert uses_mrope(as_transformers_has(config))
    assert has_mrope(config)


def test_a_target_without_positions_of_images_has_none() -> None:
    assert not has_mrope({"rope_scaling": None, "mrope_section": None, "vision_config": {}})


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    asked, option, problem = REFUSED[case]
    problems = [str(each) for each in found(**asked).problems]
    assert any(each.startswith(option) and problem in each for each in problems), problems
    assert not any("\n" in each for each in problems)


def test_without_a_tree_nothing_is_resolved() -> None:
    resolved = found(num_speculative_tokens=3).resolved()
    assert resolved is not None
    assert resolved.tree is None
    assert not resolved.has_trees
    assert "tree" not in resolved.sources
