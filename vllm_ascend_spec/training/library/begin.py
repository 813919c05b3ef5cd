"""The head to go on from, in the library's form: float32, for this target, with these layers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.checkpoint.speculators import is_speculators
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training.atomic import TEMPORARY
from vllm_ascend_spec.training.library.head import CONFIG, write_head
from vllm_ascend_spec.training.methods import METHODS
from vllm_ascend_spec.training.settings import Settings

if TYPE_CHECKING:
    from vllm_ascend_spec.training.library.head import State

OPTION = "--from"


def write_begin(settings: Settings, folder: Path) -> Path | None:
    """Write the head that was asked to go on from, unless it is there.

    Returns:
        Its folder, or None if the head begins with random weights.

    Raises:
        ConfigError: the library cannot convert it.
    """
    if settings.begin_with is None or folder.is_dir():
        return None if settings.begin_with is None else folder
    import torch

    config = json.loads((settings.begin_with / CONFIG).read_text())
    source = settings.begin_with
    if not is_speculators(config):
        source = folder.with_name(f"{folder.name}-converted{TEMPORARY}")
        shutil.rmtree(source, ignore_errors=True)
        _convert(settings, config, source)
        config = json.loads((source / CONFIG).read_text())
    # Steps of a small rate are lost in bfloat16.
    added = partial(_of_target, settings.model)
    write_head(source, folder, torch.float32, added, **_changed(settings, config))
    if source != settings.begin_with:
        shutil.rmtree(source)
    return folder


def _convert(settings: Settings, config: Mapping[str, Any], folder: Path) -> None:
    from speculators.convert.entrypoints import convert_model

    algorithm = METHODS[settings.method].converter
    if algorithm is None:
        problem = (
            f"speculators 0.9 has no converter for {settings.method}; valid: a head in the form of "
            "the speculators library"
        )
        raise ConfigError(OPTION, str(settings.begin_with), problem)
    try:
        convert_model(
            model=str(settings.begin_with),
            verifier=str(settings.model.resolve()),
            algorithm=algorithm,
            output_path=str(folder),
            **CONVERSIONS[algorithm](settings, config),
        )
    except (KeyError, OSError, RuntimeError, ValueError) as error:
        about = " ".join(str(error).split())
        raise ConfigError(OPTION, str(settings.begin_with), f"is not converted: {about}") from None


def _eagle3(settings: Settings, config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "eagle_aux_hidden_state_layer_ids": list(settings.layers),
        "norm_before_residual": bool(config.get("norm_before_residual", False)),
    }


def _dflash(settings: Settings, config: Mapping[str, Any]) -> dict[str, Any]:
    return {"aux_hidden_state_layer_ids": list(settings.layers)}


def _of_target(target: Path, state: State) -> State:
    """Return the target's embeddings and output layer, where a head has none of its own.

    The library means to read them from the target where they are NaN
    (speculators/model.py:DraftVocabMixin.load_verifier_weights), but transformers 5 leaves what is
    missing as the memory was.
    """
    from speculators.utils.loading import load_model_layers

    missing = {EMBEDDING, OUTPUT} - state.keys()
    if not missing:
        return {}
    found = load_model_layers([EMBEDDING, OUTPUT], str(target))
    own = {EMBEDDING: found[EMBEDDING], OUTPUT: found.get(OUTPUT, found[EMBEDDING]).clone()}
    if "t2d" in state:
        own[OUTPUT] = own[OUTPUT][state["t2d"].bool()]
    return {name: own[name] for name in missing}


EMBEDDING, OUTPUT = "embed_tokens.weight", "lm_head.weight"
# What the library's converters are told, by algorithm.
CONVERSIONS: Mapping[str, Callable[[Settings, Mapping[str, Any]], dict[str, Any]]] = {
    "eagle3": _eagle3,
    "dflash": _dflash,
}
LAYERS = ("eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids")


def _changed(settings: Settings, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of the head's config that say whose layers it reads."""
    own = dict(config["speculators_config"])
    own["verifier"] = own["verifier"] | {"name_or_path": str(settings.model.resolve())}
    layers = {name: list(settings.layers) for name in LAYERS if name in config}
    return {"speculators_config": own, **layers}
