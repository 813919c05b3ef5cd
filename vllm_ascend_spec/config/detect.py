"""Detect which method a draft is for if the user does not name it.

vLLM detects it by the draft's name and ``config.json``
(vllm/config/speculative.py:SpeculativeConfig.__post_init__). The same facts are read here, without
vLLM; ``tests/config/test_detect.py`` runs vLLM's code on them. vLLM takes some heads for ordinary
models or for other heads and then cannot load them; here their tensors decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vllm_ascend_spec.checkpoint import config_json, speculators
from vllm_ascend_spec.checkpoint.config_json import parse_object
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError
from vllm_ascend_spec.checkpoint.files import read_checkpoint
from vllm_ascend_spec.checkpoint.heads import ABOUT, kind_of
from vllm_ascend_spec.checkpoint.hub import HUGGING_FACE, current_hub
from vllm_ascend_spec.checkpoint.mtp_models import (
    ARCHITECTURES,
    IF_COUNTED,
    MODEL_TYPES,
    WITH_TEXT_PART,
)
from vllm_ascend_spec.config import known_to_vllm
from vllm_ascend_spec.config.speculators_format import Detected, HeadAsModel, read_head

Config = Mapping[str, Any]
NGRAM, CUSTOM, DRAFT_MODEL, MTP = "ngram", "custom_class", "draft_model", "mtp"
URLS = ("http://", "https://", "file://")


@dataclass(frozen=True)
class Rule:
    """One of vLLM's rules; :data:`RULES` has them in vLLM's order.

    Attributes:
        method: the method of a draft that the rule fits.
        name: a part of the draft's name or path, in lower case; "" for none.
        model_types: values of ``model_type`` in its config.
        architectures: values of the first architecture in its config.
    """

    method: str
    name: str = ""
    model_types: frozenset[str] = frozenset()
    architectures: frozenset[str] = frozenset()


RULES = (
    Rule("eagle", name="eagle-"),
    Rule("eagle3", name="eagle3"),
    Rule("dflash", name="dflash", architectures=frozenset({"MuseGlimmerAssistantModel"})),
    Rule(
        "dspark",
        name="dspark",
        architectures=frozenset({"Qwen3DSparkModel", "Qwen3OmniDSparkModel", "Gemma4DSparkModel"}),
    ),
    Rule("medusa", model_types=frozenset({"medusa"})),
    Rule("mlp_speculator", model_types=frozenset({"mlp_speculator"})),
    Rule(MTP, model_types=MODEL_TYPES, architectures=ARCHITECTURES),
)
# Methods that vLLM's rules may confuse, so that tensors are read, too.
BY_TENSORS = ("eagle", "eagle3", "dflash", "dspark", DRAFT_MODEL)
# Parts of names that heads usually have, in lower case, used if there is no config.
USUAL_NAMES = {
    "eagle": "eagle",
    "medusa": "medusa",
    "mlpspeculator": "mlp_speculator",
    "mlp-speculator": "mlp_speculator",
    "accelerator": "mlp_speculator",
}


def asked_for(model: str | None, spec: Any) -> HeadAsModel:
    """Return the target and the speculative config; a method that is not given is detected.

    Args:
        model: the target, or a head's folder; None if it is not known.
        spec: as given by the user; None for none.

    Raises:
        ConfigError: as :func:`vllm_ascend_spec.config.speculators_format.read_head` does.
    """
    asked = read_head(model, spec)
    if not isinstance(asked.spec, Mapping):
        return asked
    named = {str(key).replace("-", "_"): key for key in asked.spec}
    given = {name: asked.spec[key] for name, key in named.items()}
    draft = given.get("model")
    if given.get("method") is not None or not isinstance(draft, str) or not draft:
        return asked
    found = detect(draft, given.get("revision"))
    # The model of ngram is no checkpoint. The method comes first, as users write it.
    out = ("method", "model") if found.method == NGRAM else ("method",)
    rest = {key: asked.spec[key] for name, key in named.items() if name not in out}
    return replace(asked, spec={"method": found.method, **found.options, **rest}, detected=found)


def detect(model: str, revision: Any = None) -> Detected:
    """Return the method that a draft is for, and how it was detected.

    Args:
        model: a folder or a hub's name, the path of a class, or ``ngram``.
        revision: its revision on a hub.
    """
    if model.strip("[]") == NGRAM:
        return Detected(NGRAM, f"found from model {model!r}")
    if _is_path_of_class(model):
        return Detected(CUSTOM, "found from the model's name, a path to a class")
    folder = _folder_of(model, revision)
    config = _config_of(folder) if folder is not None else None
    found = by_vllm(model, {})
    if found is None and folder is None and current_hub().name == HUGGING_FACE:
        config = known_to_vllm.draft_config(model, revision)
    found = found or by_vllm(model, config or {})
    if folder is not None and (found is None or found.method in BY_TENSORS):
        told = _by_checkpoint(folder, config or {})
        found = told if told is not None and told.method != (found and found.method) else found
    if found is None and not (config and "model_type" in config):
        name = Path(model).name.lower()
        part = next((part for part in USUAL_NAMES if part in name), None)
        if part is not None:
            return Detected(USUAL_NAMES[part], f"found from {part!r} in the model's name")
    if found:
        return found
    unread = "" if config is not None else ", and its config.json could not be read"
    return Detected(DRAFT_MODEL, f"taken as nothing says that {model!r} is a head{unread}")


def by_path(model: str) -> Rule | None:
    """Return vLLM's rule that fits a part of a draft's name or path; None if none does."""
    return next((rule for rule in RULES if rule.name and rule.name in model.lower()), None)


def by_vllm(model: str, config: Config) -> Detected | None:
    """Return the method by vLLM's rules; None for a draft that vLLM takes for an ordinary model.

    Args:
        model: the draft's folder or name.
        config: its ``config.json``.
    """
    model_type, name = str(config.get("model_type")), config_json.NAME
    architectures = config.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else None
    for rule in RULES:
        if rule.name and rule.name in model.lower():
            return Detected(rule.method, f"found from {rule.name!r} in the model's name")
        if first in rule.architectures or _is_old_dspark(rule, first, model_type):
            return Detected(rule.method, f"found from architecture {first!r} in its {name}")
        if model_type in rule.model_types:
            return Detected(rule.method, f"found from model_type {model_type!r} in its {name}")
    return _by_other_mtp(config_json.text_of(config) if first in WITH_TEXT_PART else config)


def _is_old_dspark(rule: Rule, architecture: object, model_type: str) -> bool:
    return rule.method == "dspark" and (architecture, model_type) == ("DSparkDraftModel", "qwen3")


def _by_other_mtp(config: Config) -> Detected | None:
    """Apply the last of vLLM's rules, which are about families of model types."""
    model_type, count = str(config.get("model_type")), config.get("num_nextn_predict_layers")
    is_counted = isinstance(count, int) and count > 0
    if model_type.endswith("_mtp") or "exaone4_5" in model_type:
        return Detected(MTP, f"found from model_type {model_type!r} in its {config_json.NAME}")
    if model_type in IF_COUNTED and is_counted:
        source = f"found from num_nextn_predict_layers={count} in its {config_json.NAME}"
        return Detected(MTP, source)
    return None


def _by_checkpoint(folder: Path, config: Config) -> Detected | None:
    """Return the method by what vLLM does not read in a folder; None if nothing tells it."""
    if speculators.is_speculators(config):
        kind = str(config.get(speculators.ALGORITHM))
        options = dict(speculators.PROPOSED.get(kind, {}))
        source = f"found from {speculators.ALGORITHM} {kind!r} in its {config_json.NAME}"
        return Detected(options.pop("method", kind), source, options)
    try:
        kind = kind_of(read_checkpoint(folder)) or ""
    except (InvalidCheckpointError, OSError):  # the checks of the draft report it
        return None
    return Detected(kind, f"found from its tensors: {ABOUT[kind]}") if kind else None


def _is_path_of_class(model: str) -> bool:
    """Port of SpeculativeConfig._is_custom_proposer_path."""
    parts = model.split(".")
    is_dotted = len(parts) > 1 and all(part.isidentifier() for part in parts)
    return is_dotted and "/" not in model and not model.startswith(URLS)


def _folder_of(model: str, revision: Any) -> Path | None:
    try:
        if Path(model).is_dir():
            return Path(model)
        return current_hub().cached(model, revision if isinstance(revision, str) else None)
    except (OSError, ValueError):  # not a name that can be looked up; its check says so
        return None


def _config_of(folder: Path) -> Config | None:
    try:
        return parse_object(config_json.NAME, (folder / config_json.NAME).read_bytes())
    except (InvalidCheckpointError, OSError, ValueError):  # the checks of the draft report it
        return None
