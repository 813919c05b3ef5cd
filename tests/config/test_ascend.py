"""Options that mean nothing, or something lossy, on an NPU."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from vllm.config import SpeculativeConfig

from vllm_ascend_spec.config.ascend import ADDITIONAL, SPECULATIVE, check_ascend_options
from vllm_ascend_spec.config.device import Device
from vllm_ascend_spec.config.engine import UNKNOWN, EngineOptions
from vllm_ascend_spec.config.tree_shape import Tree, best_tree
from vllm_ascend_spec.devices import cpu, npu
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks.preflight import resolve_engine


def check(additional: Any = None, **spec: Any) -> None:
    check_ascend_options(additional, spec.get)


@pytest.mark.parametrize(
    "additional",
    [
        None,
        {},
        {"rejection_sampler_config": None},
        {"rejection_sampler_config": {"enable_block_verify": False}},
        {"dynamic_spec_config": {"method": None}},
        {"enable_cpu_binding": True},
    ],
)
def test_nothing_is_said_about_other_options(additional: Any) -> None:
    check(additional, quantization=None)


@pytest.mark.parametrize(("section", "name"), ADDITIONAL)
def test_additional_config_is_refused(section: str, name: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check({section: {name: True}})
    assert str(raised.value).startswith(f"additional_config.{section}.{name}=True: ")


def test_lossy_block_verification_is_refused_with_ours_in_its_place() -> None:
    additional = {"rejection_sampler_config": {"enable_block_verify": True}}
    with pytest.raises(ConfigError, match=r"not lossless.*ascend_spec\.verify_rule='block'"):
        check(additional)


@pytest.mark.parametrize("name", SPECULATIVE)
def test_speculative_config_is_refused(name: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check(**{name: "something"})
    assert str(raised.value).startswith(f"speculative_config.{name}='something': has no effect")


EAGLE = {"method": "eagle", "model": "org/eagle", "num_speculative_tokens": 3}
SAMPLED = {"draft_sample_method": "probabilistic"}


@pytest.mark.parametrize(
    ("spec", "engine", "option"),
    [
        ({}, {}, None),
        (SAMPLED, {}, "speculative_config.draft_sample_method='probabilistic'"),
        (SAMPLED, {"enforce_eager": True}, None),
        ({**SAMPLED, "enforce_eager": True}, {}, None),
        (SAMPLED, {"cudagraph_mode": "PIECEWISE"}, None),
        (SAMPLED, {"cudagraph_mode": UNKNOWN}, None),
        (SAMPLED, {"cudagraph_mode": "FULL_DECODE_ONLY"}, "speculative_config.draft_sample_met"),
        ({**SAMPLED, "num_speculative_tokens_per_batch_size": [[1, 4, 2]]}, {}, None),
        ({}, {"cudagraph_mode": "FULL"}, "compilation_config.cudagraph_mode='FULL'"),
    ],
)
def test_full_graphs_refuse(
    spec: dict[str, Any], engine: dict[str, Any], option: str | None
) -> None:
    on_npu = EngineOptions(device=npu.DEVICE, **engine)
    if option is None:
        resolve_engine("org/target", {**EAGLE, **spec}, engine=on_npu)
    else:
        with pytest.raises(ConfigError) as raised:
            resolve_engine("org/target", {**EAGLE, **spec}, engine=on_npu)
        assert str(raised.value).startswith(option)
    # Those are rules of the NPU alone.
    resolve_engine(
        "org/target", {**EAGLE, **spec}, engine=EngineOptions(device=cpu.DEVICE, **engine)
    )


def test_trees_are_refused_in_graphs_of_prompts() -> None:
    ngram, tree = {"method": "ngram", "prompt_lookup_max": 4}, {"ascend_spec": {"tree": 12}}
    full = {"cudagraph_mode": "FULL"}
    with pytest.raises(ConfigError, match=r"ascend_spec\.tree=12: .*'FULL'.*'FULL_DECODE_ONLY'"):
        resolve_engine("org/target", ngram, tree, EngineOptions(device=npu.DEVICE, **full))
    for engine in ({}, {**full, "enforce_eager": True}, {"cudagraph_mode": "FULL_DECODE_ONLY"}):
        resolve_engine("org/target", ngram, tree, EngineOptions(device=npu.DEVICE, **engine))
    resolve_engine("org/target", ngram, tree, EngineOptions(device=cpu.DEVICE, **full))


def test_a_tree_has_at_most_as_many_drafts_as_fused_attention_takes_rows() -> None:
    ngram, tree = {"method": "ngram", "prompt_lookup_max": 4}, {"ascend_spec": {"tree": 16}}
    with pytest.raises(ConfigError, match="verifies up to 15; valid: tree=15"):
        resolve_engine("org/target", ngram, tree, EngineOptions(device=npu.DEVICE))
    resolve_engine("org/target", ngram, tree, EngineOptions(device=cpu.DEVICE))


@pytest.mark.parametrize("device", [npu.DEVICE, cpu.DEVICE], ids=lambda device: device.name)
@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        ({}, None),
        ({"data_parallel_size": 2}, None),
        ({"enable_eplb": True}, "expert load balancing"),
    ],
)
def test_our_draft_loop_is_refused_where_it_is_not_possible(
    device: Device, engine: dict[str, Any], reason: str | None
) -> None:
    engine = {"device": device, **engine}
    for loop in ("ours", "auto", "stock"):
        options = {"ascend_spec": {"draft_loop": loop}}
        if loop == "ours" and reason is not None:
            with pytest.raises(ConfigError, match=f"{reason}; valid here: 'auto', 'stock'"):
                resolve_engine("org/target", EAGLE, options, EngineOptions(**engine))
        else:
            resolve_engine("org/target", EAGLE, options, EngineOptions(**engine))


def test_attention_of_another_device_is_refused_on_a_cpu() -> None:
    for name, backend in (
        ("CPU_ATTN", None),
        ("auto", None),
        ("FLASH_ATTN", "not possible"),
    ):
        spec = {**EAGLE, "attention_backend": name}
        if backend is None:
            resolve_engine("org/target", spec, engine=EngineOptions(device=cpu.DEVICE))
        else:
            with pytest.raises(ConfigError, match=backend):
                resolve_engine("org/target", spec, engine=EngineOptions(device=cpu.DEVICE))


def test_options_are_vllms() -> None:
    known = {field.name for field in fields(SpeculativeConfig)}  # type: ignore[arg-type]
    assert set(SPECULATIVE) <= known


def test_a_number_of_drafts_is_a_comb_where_a_model_makes_a_pass_for_each_inner_node() -> None:
    """Any shape may be asked for; one that takes the draft no pass is the best one."""
    asked = {"ascend_spec": {"tree": 12}}

    def shape(spec: dict[str, Any], engine: EngineOptions, **more: Any) -> Tree | None:
        resolved = resolve_engine("org/target", {**spec, **more}, asked if not more else {}, engine)
        assert not resolved.shapes_tree or engine.device is cpu.DEVICE
        return resolved.tree

    on_npu, on_cpu = (EngineOptions(device=device.DEVICE) for device in (npu, cpu))
    loop = {"method": "eagle3", "model": "org/head"}
    assert shape(loop, on_cpu) == best_tree(12)
    assert shape(loop, on_npu) == best_tree(12, is_comb=True) != best_tree(12)
    assert shape({**loop, "method": "dflash"}, on_npu) == best_tree(12)
    assert shape(loop, on_npu, speculative_token_tree=list(best_tree(12))) == best_tree(12)
