"""Read ``config.json``, and check the types and ranges of the entries that decide shapes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, printable, short_value
from vllm_ascend_spec.checkpoint.speculators import flattened, is_speculators

NAME = "config.json"
REQUIRED = object()
DTYPE = re.compile(r"b?float\d\w*|half|float|double|auto")
# In a head saved with vLLM's EAGLEConfig these describe the head, not its model.
WRAPPER = ("model", "model_type", "architectures")


def read_config(folder: Path) -> dict[str, Any]:
    """Return the config of a checkpoint.

    A head saved with vLLM's ``EAGLEConfig`` holds its model's settings in ``model`` and is named
    after its model. A head of the speculators library has them in a part of its config, too.

    Raises:
        InvalidCheckpointError: it is not a JSON object.
        OSError: it cannot be read.
    """
    config = parse_object(NAME, (folder / NAME).read_bytes())
    if is_speculators(config):
        return flattened(config)
    inner = config.get("model")
    if config.get("model_type") == "eagle" and isinstance(inner, dict):
        config = inner | {key: value for key, value in config.items() if key not in WRAPPER}
        if isinstance(names := inner.get("architectures"), list):
            config["architectures"] = [f"Eagle{str(name).removeprefix('Eagle')}" for name in names]
    return config


def text_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the text part of a multimodal model's config, or all of any other config."""
    text = config.get("text_config", config)
    return text if isinstance(text, dict) else config


def architecture_of(config: Mapping[str, Any], usual: Mapping[str, str] | None = None) -> str:
    """Return the first of ``architectures``.

    Args:
        config: the config of a checkpoint.
        usual: the architecture for each ``model_type`` if the config may name none.

    Raises:
        InvalidCheckpointError: there is none.
    """
    names = config.get("architectures")
    if not names and usual is not None:
        return usual.get(str(config.get("model_type")), "")
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise InvalidCheckpointError(
            f"{NAME}: architectures is {short_value(names)}; valid: a list such as "
            "['LlamaForCausalLM']"
        )
    return names[0]


def size(config: Mapping[str, Any], name: str, default: Any = REQUIRED) -> Any:
    """Return an entry that is a whole number from 1 on; null and absent mean ``default``.

    Raises:
        InvalidCheckpointError: it is something else, or absent and without a default.
    """
    value = config.get(name)
    if value is None and default is not REQUIRED:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        given = f"is {short_value(value)}" if name in config else "is missing"
        raise InvalidCheckpointError(f"{NAME}: {name} {given}; valid: a whole number from 1 on")
    return value


def flag(config: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """Return an entry that is true or false.

    Raises:
        InvalidCheckpointError: it is something else.
    """
    value = config.get(name, default)
    if not isinstance(value, bool):
        raise InvalidCheckpointError(f"{NAME}: {name} is {short_value(value)}; valid: true, false")
    return value


def check_number(
    config: Mapping[str, Any], name: str, types: tuple[type, ...] = (int, float)
) -> None:
    """Raise unless an entry is absent or a positive number of one of ``types``.

    Raises:
        InvalidCheckpointError: it is something else.
    """
    value = config.get(name, 1.0)
    if type(value) not in types or not 0 < value < math.inf:
        valid = "a number above 0" if int in types else "a number above 0 with a decimal point"
        raise InvalidCheckpointError(f"{NAME}: {name} is {short_value(value)}; valid: {valid}")


def check_dtype(config: Mapping[str, Any], name: str) -> None:
    """Raise unless an entry is absent, null or the name of a floating dtype.

    Raises:
        InvalidCheckpointError: it is something else.
    """
    value = config.get(name)
    if value is not None and not (isinstance(value, str) and DTYPE.fullmatch(value)):
        raise InvalidCheckpointError(
            f"{NAME}: {name} is {short_value(value)}; valid: 'bfloat16', 'float16', 'float32'"
        )


def check_table(config: Mapping[str, Any], name: str) -> None:
    """Raise unless an entry is absent, null or a table.

    Raises:
        InvalidCheckpointError: it is something else.
    """
    value = config.get(name)
    if value is not None and not isinstance(value, dict):
        raise InvalidCheckpointError(
            f"{NAME}: {name} is {short_value(value)}; valid: an object, null"
        )


def parse_object(what: str, content: bytes, *, unique: bool = False) -> dict[str, Any]:
    """Parse JSON that has to be an object.

    Args:
        what: names the JSON in a message.
        content: in UTF-8.
        unique: whether to refuse duplicate keys.

    Raises:
        InvalidCheckpointError: it is something else.
    """
    hook = _without_duplicates if unique else None
    try:
        parsed = json.loads(content.decode(), object_pairs_hook=hook)
    except InvalidCheckpointError as problem:
        raise InvalidCheckpointError(f"{what} names {problem} twice") from None
    except RecursionError:
        raise InvalidCheckpointError(
            f"{what} is not JSON that can be read: nested too deep"
        ) from None
    except ValueError as error:
        raise InvalidCheckpointError(f"{what} is not JSON: {str(error)[:80]}") from None
    if not isinstance(parsed, dict):
        raise InvalidCheckpointError(f"{what} is not a JSON object")
    return parsed


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        raise InvalidCheckpointError(
            printable(next(name for name in names if names.count(name) > 1))
        )
    return table
