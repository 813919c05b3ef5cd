"""The method of a draft where nobody names it: as vLLM detects it, and what is said of it."""

from __future__ import annotations

import copy
import inspect
import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vllm.config import speculative
from vllm.config.speculative import SpeculativeConfig

from tests.config.checkpoints import edit_config, to_speculators, write_checkpoint, write_eagle3
from tests.zoo import EVERY, SPECS, TARGET
from vllm_ascend_spec.config import known_to_vllm
from vllm_ascend_spec.config.detect import asked_for, by_vllm, detect
from vllm_ascend_spec.errors import AscendSpecError, CheckpointError
from vllm_ascend_spec.hooks.preflight import resolve_engine

pytestmark = pytest.mark.usefixtures("no_hub")
K = {"num_speculative_tokens": 3}
DRAFTS = {name: spec for name, spec in EVERY.items() if "model" in spec and name != "hybrid"}


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where no hub can be reached, at once."""
    monkeypatch.setattr(known_to_vllm, "draft_config", lambda *_: None)


@pytest.mark.parametrize("name", DRAFTS)
def test_every_draft_of_the_zoo(name: str) -> None:
    spec = {key: value for key, value in DRAFTS[name].items() if key != "method"}
    found = resolve_engine(TARGET, spec)
    assert found is not None
    assert found.method == DRAFTS[name]["method"]
    source = found.sources["method"]
    assert source.startswith(("found from ", "taken as "))
    assert found.as_json()["method"]["from"] == found.as_json()["drafter"]["from"] == source
    assert found.notes == (f"No method was given: {found.method!r}, {source}.",)


def test_a_method_that_was_named_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vllm_ascend_spec.config.detect.detect", None)
    found = resolve_engine(TARGET, SPECS["eagle"])
    assert found is not None
    assert (found.notes, found.sources["method"]) == ((), "speculative_config.method")


@pytest.mark.parametrize("word", ["ngram", "[ngram]"])
def test_the_word_for_n_grams_is_no_model(word: str) -> None:
    asked = asked_for(TARGET, {"model": word, "num-speculative-tokens": 3})
    assert asked.spec == {"method": "ngram", "num-speculative-tokens": 3}


@pytest.mark.parametrize("spec", [K, {**K, "model": None}, {**K, "model": 3}, {"model": ""}, [], 3])
def test_what_names_no_draft_is_refused_as_before(spec: Any) -> None:
    assert asked_for(TARGET, spec).spec == spec
    with pytest.raises(AscendSpecError, match=r"name the method|must be a JSON object"):
        resolve_engine(TARGET, spec)


# Two tables: each row's method is vLLM's answer, and ours.
@pytest.mark.parametrize(
    ("model", "method"),
    [
        ("yuhuili/EAGLE-LLaMA3-Instruct-8B", "eagle"),
        ("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "eagle3"),
        ("AngelSlim/Qwen3-8B_eagle3", "eagle3"),
        ("z-lab/Qwen3-8B-DFlash", "dflash"),
        ("deepseek-ai/dspark_qwen3_8b_block7", "dspark"),
        ("package.Class", "custom_class"),
        ("[ngram]", "ngram"),
        ("facebook/opt-125m", "draft_model"),
    ],
)
def test_names_as_vllm_reads_them(model: str, method: str) -> None:
    assert detect(model).method == detected_by_vllm(model, {"model_type": "llama"}) == method


@pytest.mark.parametrize(
    ("model", "method"),
    [
        ("ibm-fms/llama3-70b-accelerator", "mlp_speculator"),
        ("ibm-granite/granite-7b-instruct-accelerator", "mlp_speculator"),
        ("abhigoyal/vllm-medusa-llama-68m-random", "medusa"),
        ("JackFram/llama-68m", "draft_model"),
    ],
)
def test_names_where_no_config_is_to_be_had(model: str, method: str) -> None:
    assert detect(model).method == method


def test_a_hubs_config_counts_more_than_such_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_to_vllm, "draft_config", lambda *_: {"model_type": "llama"})
    assert detect("someone/medusa-small").method == "draft_model"
    monkeypatch.setattr(known_to_vllm, "draft_config", lambda *_: {"model_type": "medusa"})
    found = detect("someone/small")
    assert (found.method, found.source) == (
        "medusa",
        "found from model_type 'medusa' in its config.json",
    )


FUNCTIONS = ("hf_config_override", "__post_init__")


def code_named(name: str) -> types.CodeType:
    """Return a method of vLLM's class, also where a patch of ours has replaced it."""
    module = compile(inspect.getsource(SpeculativeConfig), "speculative.py", "exec")
    (body,) = (const for const in module.co_consts if isinstance(const, types.CodeType))
    found = (const for const in body.co_consts if isinstance(const, types.CodeType))
    return next(code for code in found if code.co_name == name)


def constants_of(code: types.CodeType) -> Iterator[str]:
    """Yield every text that a function compares or writes."""
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from constants_of(const)
        for item in const if isinstance(const, tuple | frozenset) else (const,):
            if isinstance(item, str):
                yield item


def detected_by_vllm(model: str, config: dict[str, Any]) -> str | None:
    """Return what vLLM's own code detects; it is run up to where it needs an engine."""
    from transformers import PretrainedConfig

    made = object.__new__(SpeculativeConfig)
    names = SpeculativeConfig.__dataclass_fields__
    for name, field in names.items():
        default = field.default
        object.__setattr__(made, name, None if not isinstance(default, bool | str) else default)
    target = types.SimpleNamespace(hf_config=PretrainedConfig(), hf_overrides=None)
    vars(made).update(method=None, model=model, num_speculative_tokens=3)

    read_configs = []

    def model_config(**_: Any) -> Any:
        raw = {"architectures": ["LlamaForCausalLM"], **copy.deepcopy(config)}
        read = PretrainedConfig(**{k: v for k, v in raw.items() if k != "model_type"})
        read.model_type = raw["model_type"]
        if isinstance(text := raw.get("text_config"), dict):
            read.text_config = PretrainedConfig(**text)
            read.text_config.model_type = text.get("model_type", "")
        read = SpeculativeConfig.hf_config_override(read)
        read_configs.append(read)
        return types.SimpleNamespace(model=model, architectures=read.architectures, hf_config=read)

    object.__setattr__(made, "target_model_config", Anything(target))
    own = {**vars(speculative), "ModelConfig": model_config}
    code = SpeculativeConfig.__post_init__.__code__
    try:
        types.FunctionType(code, own)(made)
    except Exception:
        if not read_configs:
            raise
    return made.method


class Anything:
    """Has every attribute that is asked for; those of ``known`` are real."""

    def __init__(self, known: Any) -> None:
        self._known = known

    def __getattr__(self, name: str) -> Any:
        return getattr(self._known, name, None)


def test_configs_as_vllm_reads_them() -> None:
    """Each text in vLLM's two functions, as an architecture and as a model type."""
    texts = {
        *(text for name in FUNCTIONS for text in constants_of(code_named(name))),
        *("llama", "exaone4_5_text", "DSparkDraftModel", "Qwen3OmniDSparkModel"),
    }
    texts = {text for text in texts if text.isidentifier() and text != "moe"}
    assert {"deepseek_v3", "MiMoForCausalLM", "qwen3_5_moe_text", "medusa"} <= texts
    counted = {"num_nextn_predict_layers": 1, "num_experts": 2, "mtp_num_experts": 2}
    rest = {"mtp_num_experts_per_tok": 1, "hc_count": 1, "layer_types": [], "mtp_config": counted}
    rest["num_attention_heads"] = 1
    found, wrong = set(), {}
    for text in sorted(texts):
        part = {"model_type": text, "architectures": [text], **counted, **rest}
        inner = {"text_config": part}
        configs = (
            {"model_type": text},
            {"model_type": "llama", "architectures": [text]},
            {"model_type": "qwen3", "architectures": [text]},  # two count together
        )
        for config in configs[: 3 if "DSpark" in text else 2]:
            whole = {**counted, **rest, **config, **inner}
            theirs, ours = detected_by_vllm("some/draft", whole), by_vllm("some/draft", whole)
            found.add(theirs)
            if (ours.method if ours else "draft_model") != theirs:
                wrong[str(config)] = (theirs, ours)
    assert not wrong, wrong
    assert found >= {"draft_model", "dflash", "dspark", "medusa", "mlp_speculator", "mtp"}


def test_without_mtp_layers_some_are_ordinary() -> None:
    config = {"model_type": "nemotron_h", "num_nextn_predict_layers": 0}
    assert by_vllm("some/draft", config) is None
    assert detected_by_vllm("some/draft", config) == "draft_model"


def test_a_heads_tensors_say_more_than_its_name(tmp_path: Path) -> None:
    head = write_eagle3(tmp_path / "eagle-head")
    assert detected_by_vllm(str(head), {"model_type": "llama"}) == "eagle"
    found = detect(str(head))
    assert (found.method, found.source) == ("eagle3", "found from its tensors: an EAGLE-3 head")


def test_a_head_of_the_speculators_library(tmp_path: Path) -> None:
    head = to_speculators(write_eagle3(tmp_path / "head"), TARGET)
    assert detect(str(head)).source == (
        "found from speculators_model_type 'eagle3' in its config.json"
    )
    edit_config(head, speculators_model_type="peagle")
    asked = asked_for(TARGET, {"model": str(head), **K})
    assert asked.spec == {"method": "eagle3", "parallel_drafting": True, "model": str(head), **K}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"architectures": [3]}'])
def test_a_damaged_config_is_said_by_the_drafts_check(text: str, tmp_path: Path) -> None:
    draft = write_checkpoint(tmp_path / "draft")
    (draft / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json|architectures"):
        resolve_engine(TARGET, {"model": str(draft), **K})


def test_vllm_is_told_the_method(tmp_path: Path) -> None:
    """Where vLLM by itself takes it for another one, too."""
    from vllm.engine.arg_utils import EngineArgs

    from vllm_ascend_spec.config.resolved import speculation_of

    spec = {"model": SPECS["eagle"]["model"], **K}
    config = json.loads((Path(str(spec["model"])) / "config.json").read_text())
    assert detected_by_vllm(str(spec["model"]), config) == "draft_model"
    given = dict(spec)
    config = EngineArgs(model=TARGET, speculative_config=given).create_engine_config()
    assert config.speculative_config.method == speculation_of(config).method == "eagle"
    assert given == spec
    short = EngineArgs(model=TARGET, spec_model=str(spec["model"]), spec_tokens=3)
    assert short.create_engine_config().speculative_config.method == "eagle"
