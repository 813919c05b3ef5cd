"""Options of ``vllm-ascend-spec train``: from the command line, or a YAML file that holds them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from vllm_ascend_spec.config.json_option import parse_json
from vllm_ascend_spec.config.yaml_option import OPTION as CONFIG
from vllm_ascend_spec.config.yaml_option import read_options
from vllm_ascend_spec.errors import ConfigError, FlagsError, did_you_mean
from vllm_ascend_spec.training.answers import Sampling
from vllm_ascend_spec.training.methods import ADAPTED, SCRATCH
from vllm_ascend_spec.training.settings import Settings


def number(text: str) -> int:
    """Parse a number as vLLM does, perhaps with a suffix: ``64M`` are 64 · 2^20.

    Raises:
        ValueError: it is none.
        ArgumentTypeError: it has decimals where none are possible.
    """
    if text.isdigit():
        return int(text)
    from vllm.utils.argparse_utils import human_readable_int  # takes seconds

    return int(human_readable_int(text))


COUNT: dict[str, Any] = {"type": int, "metavar": "N"}
SIZE: dict[str, Any] = {"type": number, "metavar": "N"}
SWITCH: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
OBJECT: dict[str, Any] = {"metavar": "JSON"}
# vLLM's options for the engines of the target, by the argument of `vllm.LLM`.
ENGINE: Mapping[str, dict[str, Any]] = {
    "tensor_parallel_size": COUNT,
    "enable_expert_parallel": SWITCH,
    "quantization": {"metavar": "METHOD"},
    "kv_cache_dtype": {"metavar": "DTYPE"},
    "tokenizer": {"metavar": "FOLDER"},
    "trust_remote_code": SWITCH,
    "load_format": {"metavar": "FORMAT"},
    "hf_overrides": OBJECT,
    "limit_mm_per_prompt": OBJECT,
    "additional_config": OBJECT,
    "compilation_config": OBJECT,
    "enforce_eager": SWITCH,
    "block_size": COUNT,
    "gpu_memory_utilization": {"type": float, "metavar": "SHARE"},
    "kv_cache_memory_bytes": SIZE,
    "max_num_seqs": COUNT,
    "max_num_batched_tokens": SIZE,
}
SHORT = {"tensor_parallel_size": "-tp", "quantization": "-q"}
DTYPES = ("auto", "bfloat16", "float16", "float32")
METHOD = "eagle3"
PROMPTS = "--prompts"
DEFAULTS: Mapping[str, Any] = {
    each.name: each.default for kind in (Sampling, Settings) for each in fields(kind)
}
# How long and how fast is trained depends on what the head begins with.
FROM_RECIPE = ("steps", "learning_rate")
POSITIVE = (
    "draft_vocab_size",
    "num_speculative_tokens",
    "max_tokens",
    "max_model_len",
    "steps",
    "learning_rate",
    "nproc_per_node",
    "checkpoint_minutes",
    *(name for name, details in ENGINE.items() if details is COUNT),
)


def flag_of(name: str) -> str:
    """Return the option of an argument's name."""
    return f"--{name.replace('_', '-')}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add all options. Their defaults are filled in later, so that a file's are between."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help="the target's folder")
    parser.add_argument(
        "--prompts",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="files or folders of prompts: JSON lines (prompt, messages or conversations), plain "
        "text or a data set",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="folder for everything; a second start with the same options goes on there",
    )
    parser.add_argument("--method", help=f"kind of head to train (default: {METHOD})")
    parser.add_argument(
        "--from", dest="begin_with", type=Path, metavar="HEAD", help="head to adapt, a folder"
    )
    parser.add_argument(
        "--holdout",
        type=float,
        metavar="N",
        help="prompts to measure with and not to train on: a share of all or, from 1 on, their "
        f"number (default: {DEFAULTS['holdout']})",
    )
    parser.add_argument(
        "--layers",
        metavar="N,N,N",
        help="whose states the head reads; i stands for the output of the first i layers "
        "(default: those of --from, or as vLLM chooses)",
    )
    _add_numbers(parser)
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        help=f"of the target's weights and states (default: {DEFAULTS['dtype']})",
    )
    parser.add_argument(
        CONFIG, type=Path, metavar="FILE", help="YAML file of these options, as for vllm serve"
    )
    group = parser.add_argument_group("the target's engines")
    for name, details in ENGINE.items():
        flags = [flag_of(name), *([SHORT[name]] if name in SHORT else [])]
        group.add_argument(*flags, help="as for vllm serve", **details)


def _add_numbers(parser: argparse.ArgumentParser) -> None:
    whole = {
        "draft_vocab_size": "tokens that the head can draft (default: those of --from, or all)",
        "num_speculative_tokens": "drafts per step to train and measure for",
        "max_tokens": "most tokens of an answer",
        "max_model_len": "most tokens of prompt and answer",
        "steps": "steps of the optimizer",
        "seed": "of weights, order and answers",
        "nproc_per_node": "devices to train on, as torchrun names them",
    }
    real = {
        "temperature": "of the answers; 0 for greedy",
        "learning_rate": "the highest one",
        "checkpoint_minutes": "between checkpoints; as much a kill can lose",
    }
    for kind, named in ((int, whole), (float, real)):
        for name, about in named.items():
            has_default = name in FROM_RECIPE or DEFAULTS[name] is not None
            default = f" (default: {_default(name)})" if has_default else ""
            parser.add_argument(flag_of(name), type=kind, metavar="N", help=f"{about}{default}")


def _default(name: str) -> str:
    if name not in FROM_RECIPE:
        return str(DEFAULTS[name])
    scratch, adapted = getattr(SCRATCH, name), getattr(ADAPTED, name)
    or_more = " or one epoch if longer" if name == "steps" else ""
    return f"{scratch}{or_more}, with --from {adapted}"


class Reader(argparse.ArgumentParser):
    """Parser that raises an error where argparse ends the process."""

    def error(self, message: str) -> Any:
        """Raise ``message``."""
        raise FlagsError(message)


def with_file(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options given, those of ``--config`` among them; the command line wins.

    Raises:
        ConfigError: the file cannot be read, or holds something else.
    """
    given = {name: value for name, value in vars(args).items() if value is not None}
    path = given.pop("config", None)
    return given if path is None else {**_read_file(path), **given}


def _read_file(path: Path) -> dict[str, Any]:
    reader = Reader(add_help=False, allow_abbrev=False)
    add_arguments(reader)
    known = [flag for flag in reader._option_string_actions if flag != CONFIG]
    words: list[str] = []
    for key, value in read_options(path).items():
        name = str(key).replace("_", "-")
        if name == "model":
            words.insert(0, str(value))
        elif f"--{name}" in known:
            words += _words(f"--{name}", value)
        else:
            near = did_you_mean(name, [flag.lstrip("-") for flag in known])
            problem = f"has {name!r}, which is no option; {near}see vllm-ascend-spec train --help"
            raise ConfigError(CONFIG, str(path), problem)
    try:
        parsed = vars(reader.parse_args(words))
    except FlagsError as error:
        raise ConfigError(CONFIG, str(path), str(error)) from None
    return {name: value for name, value in parsed.items() if value is not None}


def _words(flag: str, value: Any) -> list[str]:
    """Return an option of the file as words of a command line."""
    import json

    if isinstance(value, bool):
        return [flag if value else f"--no-{flag.removeprefix('--')}"]
    if isinstance(value, dict):
        return [flag, json.dumps(value)]
    if isinstance(value, list) and flag == PROMPTS:
        return [flag, *map(str, value)]
    if isinstance(value, list):
        return [flag, ",".join(map(str, value))]
    return [flag, str(value)]


def engine_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``vllm.LLM`` among the options.

    Raises:
        ConfigError: one is not the JSON that it has to be.
    """
    found = {name: given[name] for name in ENGINE if name in given}
    for name, value in found.items():
        if ENGINE[name] is OBJECT:
            parsed = parse_json(flag_of(name), value)
            if not isinstance(parsed, dict):
                raise ConfigError(flag_of(name), value, "valid: a JSON object")
            found[name] = parsed
    return found


def check_numbers(given: Mapping[str, Any]) -> None:
    """Refuse numbers that mean nothing.

    Raises:
        ConfigError: naming the first.
    """
    for name in POSITIVE:
        value = given.get(name)
        if isinstance(value, int | float) and not 0 < value < float("inf"):
            raise ConfigError(flag_of(name), value, "valid: a number above 0")
    for name in ("temperature", "seed"):
        if not 0 <= given.get(name, 0) < float("inf"):
            raise ConfigError(flag_of(name), given[name], "valid: 0 and more")
    share = given.get("gpu_memory_utilization", 1.0)
    if not 0 < share <= 1:
        raise ConfigError("--gpu-memory-utilization", share, "valid: above 0, up to 1")


def parse_layers(text: str) -> tuple[int, ...]:
    """Return the value of ``--layers``.

    Raises:
        ConfigError: it is not an ascending list of numbers.
    """
    try:
        found = tuple(map(int, text.split(",")))
    except ValueError:
        found = ()
    if not found or list(found) != sorted(set(found)):
        raise ConfigError("--layers", text, "valid: numbers in ascending order, such as 2,18,34")
    return found


def words_of(engine: Mapping[str, Any]) -> Iterable[str]:
    """Yield arguments of an engine as words for ``vllm serve``."""
    for name, value in engine.items():
        yield from _words(flag_of(name), value)
