"""What ``vllm-ascend-spec train`` checks before it loads anything, and the settings from it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vllm_ascend_spec.checkpoint.config_json import (
    architecture_of,
    read_config,
    size,
    text_of,
)
from vllm_ascend_spec.checkpoint.errors import blame
from vllm_ascend_spec.checkpoint.folder import find_folder
from vllm_ascend_spec.cli import train_options
from vllm_ascend_spec.cli.train_engines import check_devices, check_engines
from vllm_ascend_spec.cli.train_head import (
    MODEL,
    check_head,
    find_head,
    find_layers,
    find_vocabulary,
)
from vllm_ascend_spec.cli.train_options import METHOD, PROMPTS
from vllm_ascend_spec.cli.train_output import check_output, chosen_of
from vllm_ascend_spec.config.device import Device
from vllm_ascend_spec.devices.select import find_device
from vllm_ascend_spec.errors import ConfigError, did_you_mean
from vllm_ascend_spec.training import methods, output, requirements
from vllm_ascend_spec.training.answers import Sampling
from vllm_ascend_spec.training.chosen import hash_of
from vllm_ascend_spec.training.prompt_files import (
    check_prompts,
    has_chat_template,
    read_prompts,
)
from vllm_ascend_spec.training.prompts import split_held_out
from vllm_ascend_spec.training.settings import Settings
from vllm_ascend_spec.training.shard_layout import BYTES_BY_DTYPE, Layout, human, require_room
from vllm_ascend_spec.training.target import target_hash
from vllm_ascend_spec.training.target_layers import problem_of_layers

# Options that are settings as they are.
AS_GIVEN = (
    "holdout",
    "max_model_len",
    "dtype",
    "num_speculative_tokens",
    "nproc_per_node",
    "checkpoint_minutes",
)


@dataclass(frozen=True)
class Checked:
    """What there is to do.

    Attributes:
        settings: with their defaults.
        ids: of the prompts to use.
        said: a line about it.
    """

    settings: Settings
    ids: set[str]
    said: str


def checked(args: argparse.Namespace) -> Checked:
    """Check what was asked for, and fill in defaults.

    Raises:
        ConfigError: the first option that is wrong.
    """
    given = train_options.with_file(args)
    for name, option in (("model", MODEL), ("prompts", PROMPTS), ("output", output.OPTION)):
        if name not in given:
            problem = "is missing; give vllm-ascend-spec train MODEL --prompts FILE --output DIR"
            raise ConfigError(option, None, problem)
    train_options.check_numbers(given)
    device = find_device()
    target = find_target(given["model"])
    method = find_method(given.get("method", METHOD), target, device)
    settings = settings_of(given, target, method)
    if settings.begin_with is not None:
        check_head(settings.begin_with, settings.method)
    layout = layout_of(settings)
    check_engines(settings, layout)
    check_devices(settings.nproc_per_node)
    check_library(settings)
    ids = chosen_of(settings.output, prompts_of(settings))
    settings = replace(settings, prompts_hash=hash_of(ids))
    check_output(settings)
    train, held_out = split_held_out(ids, settings.holdout)
    # Each prompt has one state or more; how many more, the answers will tell.
    require_room(output.OPTION, settings.output, layout, len(train))
    most = len(train) * settings.max_model_len
    said = (
        f"{len(train):,} prompts to train on, {len(held_out):,} to measure with; their states and "
        f"those of the answers take up to {human(layout.bytes_of(most))}"
    )
    return Checked(settings, ids, said)


def settings_of(given: Mapping[str, Any], target: Path, method: str) -> Settings:
    """Return the settings for some options.

    Raises:
        ConfigError: an option does not fit the target, or the head of ``--from``.
    """
    head = find_head(given.get("begin_with"))
    sampling = ("max_tokens", "temperature", "seed")
    return Settings(
        model=target,
        method=method,
        prompts=tuple(path.absolute() for path in given["prompts"]),
        output=given["output"].absolute(),
        begin_with=head,
        sampling=Sampling(**{name: given[name] for name in sampling if name in given}),
        seed=given.get("seed", Settings.seed),
        layers=find_layers(given.get("layers"), method, target, head),
        draft_vocab_size=find_vocabulary(given.get("draft_vocab_size"), target, head),
        engine=train_options.engine_of(given),
        library=tuple(given.get("rest", ())),
        target_hash=target_hash(target),
        begin_hash="" if head is None else target_hash(head),
        **{name: given[name] for name in AS_GIVEN if name in given},
        steps=given.get("steps"),
        learning_rate=given.get("learning_rate", methods.recipe_of(head).learning_rate),
    )


def prompts_of(settings: Settings) -> set[str]:
    """Return the ids of all prompts.

    Raises:
        ConfigError: one cannot be used, or there are none.
    """
    tokenizer = Path(settings.engine.get("tokenizer", settings.model))
    # One that only a hub has is left to the engine.
    has_template = has_chat_template(tokenizer) or not tokenizer.is_dir()
    ids = set[str]()
    for path in settings.prompts:
        check_prompts(PROMPTS, path, has_template)
        ids.update(prompt.id for prompt in read_prompts(PROMPTS, path))
    return ids


def check_library(settings: Settings) -> None:
    """Refuse wrong options for the trainer, which takes seconds to import, if there are any.

    Raises:
        ConfigError: naming the first.
    """
    if settings.library:
        from vllm_ascend_spec.training.library.option_words import check_library_options

        method = ("--speculator-type", settings.method)
        check_library_options("--", settings.library, method)


def layout_of(settings: Settings) -> Layout:
    """Return what will be stored of a token, as far as the target's config tells."""
    with blame(MODEL, str(settings.model)):
        config = text_of(read_config(settings.model))
        layers = {*settings.layers, size(config, "num_hidden_layers")}
        hidden = size(config, "hidden_size")
    own = str(config.get("dtype") or config.get("torch_dtype"))
    named = own if settings.dtype == "auto" else settings.dtype
    dtype = named if named in BYTES_BY_DTYPE else "float32"
    return Layout(settings.model.name, tuple(sorted(layers)), hidden, dtype)


def find_target(model: str) -> Path:
    """Return the target's folder, absolute.

    Raises:
        ConfigError: it is no folder with a checkpoint.
    """
    folder = find_folder(MODEL, model)
    if folder is None:
        problem = "is no folder; valid: a folder, such as one that `hf download` has made"
        raise ConfigError(MODEL, model, problem)
    return folder.absolute()


def find_method(name: str, target: Path, device: Device | None) -> str:
    """Return the method.

    Raises:
        ConfigError: it cannot be trained, for this target or on this device, or the trainer is
            missing.
    """
    kind = "cpu" if device is None else device.name
    if (problem := methods.problem(name, kind, target)) is not None:
        near = "" if name in methods.METHODS else did_you_mean(name, methods.METHODS)
        raise ConfigError(methods.OPTION, name, f"{near}{problem}")
    if (missing := requirements.missing()) is not None:
        raise ConfigError(methods.OPTION, name, missing)
    with blame(MODEL, str(target)):
        architecture = architecture_of(read_config(target))
    if (problem := problem_of_layers(architecture)) is not None:
        valid = f"valid for {name}: a target whose model does"
        raise ConfigError(MODEL, str(target), f"{problem}; {valid}")
    return name
