"""What ``vllm-ascend-spec train`` checks before it loads anything, and the settings from it."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from vllm_ascend_spec.checkpoint.config_json import NAME as CONFIG
from vllm_ascend_spec.checkpoint.config_json import (
    architecture_of,
    parse_object,
    read_config,
    size,
    text_of,
)
from vllm_ascend_spec.checkpoint.errors import blame
from vllm_ascend_spec.checkpoint.folder import find_folder
from vllm_ascend_spec.checkpoint.speculators import is_speculators
from vllm_ascend_spec.cli import train_options
from vllm_ascend_spec.cli.train_options import FROM_RECIPE, METHOD, flag_of
from vllm_ascend_spec.config.device import Device
from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.devices.select import find_device
from vllm_ascend_spec.errors import ConfigError, did_you_mean
from vllm_ascend_spec.hooks.preflight import resolve_engine
from vllm_ascend_spec.training import methods, output, requirements
from vllm_ascend_spec.training.answers import Sampling
from vllm_ascend_spec.training.head_layers import layers_of_head
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.prompt_files import (
    check_prompts,
    has_chat_template,
    read_prompts,
)
from vllm_ascend_spec.training.prompts import split_held_out
from vllm_ascend_spec.training.settings import Settings
from vllm_ascend_spec.training.shard_layout import BYTES_BY_DTYPE, Layout, human, require_room
from vllm_ascend_spec.training.speculation import with_head
from vllm_ascend_spec.training.target_layers import problem_of_layers

MODEL, PROMPTS, FROM = "MODEL", "--prompts", "--from"
# Options that are settings as they are.
AS_GIVEN = (
    "holdout",
    "max_model_len",
    "dtype",
    "num_speculative_tokens",
    "nproc_per_node",
    "checkpoint_minutes",
)
# Arguments of the engines that change memory and speed, but not what comes out.
MAY_DIFFER = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "enable_expert_parallel",
    "enforce_eager",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "max_num_seqs",
    "max_num_batched_tokens",
    "trust_remote_code",
)


def checked(args: argparse.Namespace) -> tuple[Settings, str]:
    """Check what was asked for, and fill in defaults.

    Returns:
        The settings, and a line that says what there is to do.

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
        check_head(settings.begin_with, settings, device)
    ids = prompts_of(settings)
    settings = replace(settings, prompts_hash=hash_of(ids))
    check_output(settings)
    train, held_out = split_held_out(ids, settings.holdout)
    layout = layout_of(settings)
    # Each prompt has one state or more; how many more, the answers will tell.
    require_room(output.OPTION, settings.output, layout, len(train))
    most = len(train) * settings.sampling.max_tokens
    return settings, (
        f"{len(train):,} prompts to train on, {len(held_out):,} to measure with; the states of "
        f"answers take up to {human(layout.bytes_of(most))}"
    )


def settings_of(given: Mapping[str, Any], target: Path, method: str) -> Settings:
    """Return the settings for some options.

    Raises:
        ConfigError: an option does not fit the target, or the head of ``--from``.
    """
    head = find_head(given.get("begin_with"))
    recipe = methods.METHODS[method].scratch if head is None else methods.METHODS[method].adapted
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
        **{name: given[name] for name in AS_GIVEN if name in given},
        **{name: given.get(name, getattr(recipe, name)) for name in FROM_RECIPE},
    )


def prompts_of(settings: Settings) -> set[str]:
    """Return the ids of all prompts.

    Raises:
        ConfigError: one cannot be used, or there are none.
    """
    has_template, ids = has_chat_template(settings.model), set[str]()
    for path in settings.prompts:
        check_prompts(PROMPTS, path, has_template)
        ids.update(prompt.id for prompt in read_prompts(PROMPTS, path))
    return ids


def hash_of(ids: Iterable[str]) -> str:
    """Return a short hash that says which prompts there are."""
    return hashlib.sha256(" ".join(sorted(ids)).encode()).hexdigest()[:16]


def layout_of(settings: Settings) -> Layout:
    """Return what will be stored of a token, as far as the target's config tells."""
    with blame(MODEL, str(settings.model)):
        config = text_of(read_config(settings.model))
        layers = {*settings.layers, size(config, "num_hidden_layers")}
        hidden = size(config, "hidden_size")
    named = settings.dtype if settings.dtype != "auto" else str(config.get("dtype"))
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


def find_head(path: Path | None) -> Path | None:
    """Return the folder of the head to adapt, absolute.

    Raises:
        ConfigError: it is no checkpoint's folder.
    """
    if path is None:
        return None
    folder = find_folder(FROM, str(path))
    if folder is None:
        raise ConfigError(FROM, str(path), "is no folder; valid: the folder of a head")
    return folder.absolute()


def check_head(head: Path, settings: Settings, device: Device | None) -> None:
    """Refuse a head of another target or method, by the checks of ``check``.

    Raises:
        ConfigError: naming what differs.
    """
    options = EngineOptions(device=device)
    with blame(FROM, str(head)):
        is_converted = is_speculators(parse_object(CONFIG, (head / CONFIG).read_bytes()))
    if not is_converted and methods.METHODS[settings.method].converter is None:
        problem = (
            f"speculators has no converter for {settings.method}; valid: a head in the form of the "
            "speculators library"
        )
        raise ConfigError(FROM, str(head), problem)
    spec = with_head(settings.method, head, settings.num_speculative_tokens)
    try:
        resolve_engine(str(settings.model), spec, engine=options)
    except ConfigError as error:
        if error.value != str(head):
            raise
        raise ConfigError(FROM, str(head), error.problem) from None


def find_layers(text: str | None, method: str, target: Path, head: Path | None) -> tuple[int, ...]:
    """Return the layers that the head reads.

    Raises:
        ConfigError: the target does not have them, or the head of ``--from`` reads others.
    """
    with blame(MODEL, str(target)):
        depth = size(text_of(read_config(target)), "num_hidden_layers")
    asked = None if text is None else train_options.parse_layers(text)
    own = None
    if head is not None:
        with blame(FROM, str(head)):
            own = layers_of_head(method, head, depth)
    if asked is not None and own is not None and asked != own:
        problem = f"the head of --from reads {','.join(map(str, own))}; leave --layers out"
        raise ConfigError("--layers", text, problem)
    found = asked or own or methods.default_layers(method, depth)
    methods.check_layers("--layers", method, found, depth)
    return found


def find_vocabulary(size: int | None, target: Path, head: Path | None) -> int | None:
    """Return how many tokens the head can draft; None for all of the target's.

    Raises:
        ConfigError: the target does not have as many, or the head of ``--from`` has others.
    """
    with blame(MODEL, str(target)):
        whole = text_of(read_config(target)).get("vocab_size")
    if head is not None:
        with blame(FROM, str(head)):
            own = read_config(head).get("draft_vocab_size")
        own = None if own == whole else own
        if size not in (None, own):
            problem = f"the head of --from has {own or whole}; leave --draft-vocab-size out"
            raise ConfigError("--draft-vocab-size", size, problem)
        return own
    if size is not None and isinstance(whole, int) and size > whole:
        problem = f"valid: 1 to {whole}, the target's vocab_size"
        raise ConfigError("--draft-vocab-size", size, problem)
    return size


def check_output(settings: Settings) -> None:
    """Refuse a folder that holds something else, or ours with other settings.

    Raises:
        ConfigError: naming the first setting that differs.
    """
    place = Output(settings.output)
    shown = str(settings.output)
    if settings.output.exists() and not settings.output.is_dir():
        raise ConfigError(output.OPTION, shown, "is a file; valid: a new folder")
    if not place.settings.exists():
        if settings.output.is_dir() and any(settings.output.iterdir()):
            problem = "holds something else; valid: a new or empty folder, or one of train's own"
            raise ConfigError(output.OPTION, shown, problem)
        return
    try:
        earlier = Settings.load(place.settings)
    except (ValueError, KeyError, TypeError):
        problem = f"{place.settings.name} cannot be read; valid: a new folder"
        raise ConfigError(output.OPTION, shown, problem) from None
    before, now = _compared(earlier), _compared(settings)
    for name in {**before, **now}:
        if before.get(name) != now.get(name):
            what = OPTIONS.get(name, flag_of(name))
            problem = (
                f"was begun with {what} {_said(before.get(name))}, now {_said(now.get(name))}; "
                "valid: the same, or a new folder"
            )
            raise ConfigError(output.OPTION, shown, problem)


# Names of settings whose option is called otherwise.
OPTIONS = {
    "model": MODEL,
    "begin_with": FROM,
    "library": "--",
    "prompts_hash": "prompts whose hash is",
}


def _compared(settings: Settings) -> dict[str, Any]:
    """Return all that a second start has to ask for again, by name."""
    found = asdict(settings)
    for name in ("output", "checkpoint_minutes"):
        found.pop(name)
    engine = found.pop("engine")
    found.update(found.pop("sampling"))
    found.update({name: value for name, value in engine.items() if name not in MAY_DIFFER})
    return found


def _said(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
