"""Read the ``vllm serve`` flags that our checks need, without vLLM and in milliseconds."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from vllm_ascend_spec.config.json_option import parse_json, parse_speculative
from vllm_ascend_spec.errors import FlagsError, did_you_mean
from vllm_ascend_spec.hooks import legacy_flags
from vllm_ascend_spec.legacy.names import BY_FLAG

SPEC, ADDITIONAL = "--speculative-config", "--additional-config"
COUNT: dict[str, Any] = {"type": int, "metavar": "N"}
SWITCH: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
# Keyed by vLLM's flag names, long and short.
FLAGS: dict[tuple[str, ...], dict[str, Any]] = {
    (SPEC, "-sc"): {"metavar": "JSON"},
    (ADDITIONAL,): {"metavar": "JSON"},
    ("--spec-method",): {"metavar": "METHOD"},
    ("--spec-model",): {"metavar": "MODEL"},
    ("--spec-tokens",): COUNT,
    ("--model",): {"metavar": "MODEL"},
    ("--tensor-parallel-size", "-tp"): {**COUNT, "default": 1},
    ("--data-parallel-size", "-dp"): {**COUNT, "default": 1},
    ("--pipeline-parallel-size", "-pp"): {**COUNT, "default": 1},
    ("--enable-eplb",): {**SWITCH, "default": False},
    ("--max-model-len",): COUNT,
    ("--max-num-seqs",): COUNT,
    ("--load-format",): {"metavar": "FORMAT", "default": "auto"},
    ("--quantization", "-q"): {"metavar": "METHOD"},
    ("--enforce-eager",): {**SWITCH, "default": False},
    ("--async-scheduling",): SWITCH,
    ("--compilation-config", "-cc"): {"metavar": "JSON"},
    ("--cudagraph-capture-sizes",): {"type": int, "nargs": "+", "metavar": "N"},
    ("--kv-transfer-config",): {"metavar": "JSON"},
}
# With these or abbreviated flags only vLLM knows what was given: the first reads a file, the others
# name a level that sets other options.
ONLY_VLLM = ("--config", "--optimization-level", "-O")
JSON = {"compilation_config": "--compilation-config", "kv_transfer_config": "--kv-transfer-config"}


class Parser(argparse.ArgumentParser):
    """Parser that raises an error where argparse exits the process."""

    def error(self, message: str) -> NoReturn:
        """Raise ``message``."""
        raise FlagsError(message)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags to a parser, including vLLM's old ones."""
    for names, details in FLAGS.items():
        parser.add_argument(*names, help="as for vllm serve", **details)
    legacy_flags.add_to(parser)


def read(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the flags that our checks need, and the arguments that only vLLM can read.

    Args:
        arguments: the arguments after ``vllm serve``.

    Raises:
        FlagsError: only vLLM can tell what these arguments mean.
        ConfigError: the value of an option is not JSON.
    """
    words = [_with_dashes(word) for word in arguments]
    named = [word.partition("=")[0] for word in words if word.startswith("-")]
    for name in named:
        is_short = name.startswith("--") and any(
            flag.startswith(name) and flag != name for flags in FLAGS for flag in flags
        )
        if name in ONLY_VLLM or name.startswith("-O") or "." in name or is_short:
            raise FlagsError(f"{name} cannot be read without vLLM")
    parser = Parser(add_help=False, allow_abbrev=False)
    add_flags(parser)
    # vLLM wants the model first; after an unknown flag it might be the value of that flag.
    model = words.pop(0) if words and not words[0].startswith("-") else None
    namespace, rest = parser.parse_known_args(words)
    namespace.model_tag = model
    namespace.model = model if model is not None else namespace.model
    namespace.speculative_config = parse_speculative(namespace.speculative_config)
    text = namespace.additional_config
    namespace.additional_config = {} if text is None else parse_json(ADDITIONAL, text)
    for name, option in JSON.items():
        if (text := getattr(namespace, name)) is not None:
            setattr(namespace, name, parse_json(option, text))
    return namespace, rest


def near(word: str) -> str:
    """Return ``did you mean '--FLAG'? `` for a misspelled flag, else an empty string."""
    known = [flag for flags in FLAGS for flag in flags] + [*BY_FLAG]
    # Most unknown flags are other flags of vLLM, spelled correctly: suggest only close matches.
    return did_you_mean(word.partition("=")[0], known, likeness=0.9)


def _with_dashes(word: str) -> str:
    """Return a flag with dashes, as argparse knows it; vLLM accepts underscores too."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}"
