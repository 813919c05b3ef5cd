"""What a supported version cannot do is refused by its name; the limits are those of vLLM 0.23."""

from __future__ import annotations

import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.config.checkpoints import edit_config
from tests.zoo import SPECS, TARGET, ZOO
from vllm_ascend_spec import versions
from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.config.examine import examine
from vllm_ascend_spec.devices import cpu, npu
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.methods.registry import BUILT_IN
from vllm_ascend_spec.upstream import limits, ranges

EAGLE, NGRAM = SPECS["eagle"], SPECS["ngram"]
STATES = {
    "method": "extract_hidden_states",
    "num_speculative_tokens": 1,
    "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": [1]}},
}
MTP = {"method": "mtp", "num_speculative_tokens": 3}
DEEPSEEK = str(ZOO / "target-deepseek")
# Option -> model, speculative config, our options, device.
REFUSED: dict[str, tuple[str, dict[str, Any], dict[str, Any], Any]] = {
    "speculative_config.num_speculative_tokens_per_batch_size": (
        TARGET,
        {**NGRAM, "num_speculative_tokens_per_batch_size": [[1, 4, 3], [5, 8, 1]]},
        {},
        cpu.DEVICE,
    ),
    "speculative_config.disable_by_batch_size": (
        TARGET,
        {**NGRAM, "disable_by_batch_size": 4},
        {},
        cpu.DEVICE,
    ),
    "additional_config.ascend_spec.draft_length": (
        TARGET,
        EAGLE,
        {"draft_length": "adaptive"},
        cpu.DEVICE,
    ),
    "speculative_config.method": (TARGET, STATES, {}, cpu.DEVICE),
    "speculative_config.rejection_sample_method": (
        TARGET,
        {**EAGLE, "rejection_sample_method": "block"},
        {},
        cpu.DEVICE,
    ),
    "speculative_config.kv_cache_dtype": (
        TARGET,
        {**EAGLE, "kv_cache_dtype": "auto"},
        {},
        cpu.DEVICE,
    ),
    "model": (DEEPSEEK, MTP, {}, cpu.DEVICE),
    "additional_config.ascend_spec.spec_page": (TARGET, EAGLE, {"spec_page": True}, cpu.DEVICE),
    "additional_config.ascend_spec.draft_loop": (TARGET, EAGLE, {"draft_loop": "ours"}, npu.DEVICE),
    "additional_config.ascend_spec.draft_window": (TARGET, EAGLE, {"draft_window": 64}, npu.DEVICE),
    "speculative_config.draft_sample_method": (
        TARGET,
        {**EAGLE, "draft_sample_method": "probabilistic"},
        {},
        npu.DEVICE,
    ),
}


@pytest.fixture
def of_023(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let our modules know the limits of vLLM 0.23 and vllm-ascend 0.23."""
    for name in ("vllm_is", "vllm_ascend_is"):
        monkeypatch.setattr(ranges, name, lambda wanted: versions.is_in_range("0.23.0", wanted))
    earlier = runpy.run_path(str(Path(limits.__file__)))
    for module in list(sys.modules.values()):
        if module.__name__.startswith("vllm_ascend_spec.") and module is not limits:
            for name in vars(limits).keys() & vars(module).keys():
                if name.isupper():
                    monkeypatch.setattr(module, name, earlier[name])


def resolve(option: str) -> Any:
    model, spec, ours, device = REFUSED[option]
    additional = {"ascend_spec": ours} if ours else {}
    connector = "ExampleHiddenStatesConnector" if spec is STATES else None
    engine = EngineOptions(device=device, enforce_eager=True, kv_connector=connector)
    return examine(model, spec, additional, engine=engine, methods=BUILT_IN).resolved()


@pytest.mark.usefixtures("of_023")
@pytest.mark.parametrize("option", REFUSED)
def test_it_is_refused_with_the_versions_name(option: str) -> None:
    with pytest.raises(ConfigError) as raised:
        resolve(option)
    message = str(raised.value)
    assert message.startswith(f"{option}=")
    # Of an option it says which versions do not know it.
    is_unknown = option.rpartition(".")[2] in limits.FIRST_WITH
    assert ("vLLM before 0.30" if is_unknown else "0.23") in message
    assert "\n" not in message


@pytest.mark.parametrize("option", REFUSED)
def test_a_later_version_can(option: str) -> None:
    if limits.EVERY:
        pytest.skip(f"the installed version is limited: {limits.EVERY[0]}")
    assert resolve(option) is not None


@pytest.mark.usefixtures("of_023")
def test_what_is_automatic_takes_what_there_is() -> None:
    found = examine(
        TARGET, EAGLE, {}, engine=EngineOptions(device=cpu.DEVICE), methods=BUILT_IN
    ).resolved()
    assert found.draft_length == "fixed"


@pytest.mark.usefixtures("of_023")
@pytest.mark.parametrize("copies", [1, 2])
def test_copies_of_a_mixture_are_refused(copies: int, tmp_path: Path) -> None:
    folder = str(shutil.copytree(TARGET, tmp_path / "target"))
    edit_config(Path(folder), num_local_experts=4)
    engine = EngineOptions(device=cpu.DEVICE, enforce_eager=True, data_parallel_size=copies)

    def check() -> Any:
        return examine(folder, NGRAM, {}, engine=engine, methods=BUILT_IN).resolved()

    if copies == 1:
        assert check() is not None
    else:
        with pytest.raises(
            ConfigError, match=r"--data-parallel-size=2: data-parallel replicas of .*vLLM 0\.23"
        ):
            check()
