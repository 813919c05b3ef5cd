"""A head in the format of the speculators library, given as the model.

vLLM then takes the target, the method and K from the head's ``config.json``
(vllm/transformers_utils/config.py:maybe_override_with_speculators). The same is done here first, so
that the checks see what vLLM will build. A name on a hub is left to vLLM: nothing is fetched here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm_ascend_spec.checkpoint import config_json, speculators
from vllm_ascend_spec.checkpoint.config_json import parse_object
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, blame, short_value
from vllm_ascend_spec.errors import ConfigError

SOURCE = "speculators_config of the model"


@dataclass(frozen=True)
class Detected:
    """A method that was detected because the user named none.

    Attributes:
        method: the method.
        source: how it was detected, as messages put it after the method.
        options: options that come with it.
    """

    method: str
    source: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class HeadAsModel:
    """What the user asked for, with what was read from a head or detected.

    Attributes:
        model: the target.
        spec: the speculative config, with what was found out filled in.
        from_head: keys of ``spec`` that come from the head's folder.
        detected: the method, if the user named none; ``detect.py`` fills it in.
    """

    model: str | None
    spec: Any
    from_head: frozenset[str] = frozenset()
    detected: Detected | None = None


def read_head(model: str | None, spec: Any) -> HeadAsModel:
    """Return what is asked for with this model and speculative config.

    Args:
        model: the target, or a head's folder; None if it is not known.
        spec: as given by the user; None for none.

    Raises:
        CheckpointError: the folder is a head's, and its config is incomplete.
        ConfigError: the user gave an option that the head's folder decides.
    """
    config = _config_of(model)
    if config is None or not isinstance(spec, Mapping | None):
        return HeadAsModel(model, spec)
    assert model is not None
    with blame("model", model):
        target, proposed = _proposal(config)
    given = {str(key).replace("-", "_"): value for key, value in (spec or {}).items()}
    head = f"{model!r} is itself a head of method {proposed['method']!r} for {target!r}"
    for key, value in {"method": proposed["method"], "model": model}.items():
        if given.get(key) not in (None, value):
            problem = f"leave it out: {head}; or give the target as the model"
            raise ConfigError(f"speculative_config.{key}", given[key], problem)
    own = {"model": model, **proposed}
    kept = {key: value for key, value in given.items() if key not in own or value is not None}
    return HeadAsModel(target, {**own, **kept}, frozenset(own.keys() - kept.keys()))


def _config_of(model: str | None) -> dict[str, Any] | None:
    """Return the config of a head of the speculators library; None for anything else."""
    try:
        config = parse_object(config_json.NAME, (Path(model or "") / config_json.NAME).read_bytes())
    except (OSError, TypeError, ValueError):  # later checks or vLLM report it
        return None
    return config if model and speculators.is_speculators(config) else None


def _proposal(config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the target and the speculative config that a head's config proposes."""
    part = config[speculators.MARK]
    try:
        target, num_drafts = (
            part["verifier"]["name_or_path"],
            part["proposal_methods"][0]["speculative_tokens"],
        )
    except (KeyError, IndexError, TypeError):
        raise InvalidCheckpointError(
            f"config.json: {speculators.MARK} is {short_value(part)}; valid: an object with "
            "verifier.name_or_path and proposal_methods[0].speculative_tokens"
        ) from None
    if not isinstance(target, str) or not target:
        raise InvalidCheckpointError(
            f"config.json: verifier.name_or_path of {speculators.MARK} is {short_value(target)}; "
            "valid: the target's folder or a hub's name"
        )
    algorithm = config.get(speculators.ALGORITHM)
    proposed = {"method": algorithm, **speculators.PROPOSED.get(str(algorithm), {})}
    return target, {**proposed, "num_speculative_tokens": num_drafts}
