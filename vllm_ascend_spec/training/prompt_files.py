"""Read prompts one by one from JSON lines, plain text or a folder, and check them all at first.

A line of plain text is a prompt. A folder holds files of JSON lines, or is a data set in one of the
formats that need the ``datasets`` library (:mod:`vllm_ascend_spec.training.dataset_rows`).
"""

from __future__ import annotations

import codecs
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.log import log_once
from vllm_ascend_spec.training.dataset_rows import TABLES, is_saved_dataset, read_rows
from vllm_ascend_spec.training.prompts import Place, Prompt, parse_record, text_prompt

LINES, TEXT = (".jsonl", ".ndjson", ".json"), (".txt", ".text")
KINDS = f"valid: a file *{', *'.join((*LINES, *TEXT, *TABLES))}, or a folder with a data set"
# What collect/folder.py writes.
COLLECTED = re.compile(r"collected-[0-9a-f]{8}-\d{4,}\.jsonl")


def read_prompts(option: str, path: Path) -> Iterator[Prompt]:
    """Yield the prompts of a file or folder, each once, in order.

    Args:
        option: option that named it.
        path: the file or folder.

    Raises:
        ConfigError: it cannot be read, or a record is no prompt.
    """
    seen: set[str] = set()
    for prompt in _read_all(option, path):
        if prompt.id not in seen:
            seen.add(prompt.id)
            yield prompt


def check_prompts(option: str, path: Path, has_template: bool) -> None:
    """Read all prompts once, before anything is loaded.

    Args:
        option: option that named the file or folder.
        path: the file or folder.
        has_template: whether the target's tokenizer has a chat template.

    Raises:
        ConfigError: a record cannot be used, or there are none.
    """
    prompt = None
    for prompt in _read_all(option, path):
        if prompt.messages and not has_template:
            raise prompt.place.wrong(
                "is a conversation, and the target's tokenizer has no chat template",
                'valid: {"prompt": "…"} with the text that the target continues, or a tokenizer '
                "with a chat_template",
            )
    if prompt is None:
        raise ConfigError(option, str(path), "has no prompts")


def has_chat_template(target: Path) -> bool:
    """Tell whether the tokenizer in a checkpoint's folder has a chat template."""
    if (target / "chat_template.jinja").is_file() or (target / "chat_template.json").is_file():
        return True
    try:
        config = json.loads((target / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and bool(config.get("chat_template"))


def _read_all(option: str, path: Path) -> Iterator[Prompt]:
    if path.is_dir():
        yield from _read_folder(option, path)
    elif path.suffix in TABLES:
        yield from _read_dataset(option, path)
    elif path.suffix in READERS:
        yield from _read_file(option, path)
    else:
        problem = "has none of the known endings" if path.exists() else "does not exist"
        raise ConfigError(option, str(path), f"{problem}; {KINDS}")


def _read_folder(option: str, path: Path) -> Iterator[Prompt]:
    files = sorted(each for each in path.rglob("*") if each.is_file())
    if is_saved_dataset(path) or any(each.suffix in TABLES for each in files):
        yield from _read_dataset(option, path)
        return
    lines = [each for each in files if each.suffix in LINES[:2]]
    if not lines:
        raise ConfigError(option, str(path), f"has no file that can be read; {KINDS}")
    for each in lines:
        yield from _read_file(option, each)


def _read_dataset(option: str, path: Path) -> Iterator[Prompt]:
    for number, row in enumerate(read_rows(option, path), 1):
        yield parse_record(row, Place(option, path, number, "row"))


def _read_file(option: str, path: Path) -> Iterator[Prompt]:
    parse = READERS[path.suffix]
    try:
        with path.open("rb") as file:
            # Only a newline ends a line: texts may contain other line separators.
            for number, line in enumerate(file, 1):
                if COLLECTED.fullmatch(path.name) and not line.endswith(b"\n"):
                    # By a server that still writes it, or was killed.
                    log_once(logging.WARNING, f"{path}: line {number} has no end and is left out")
                    return
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)  # noqa: PLW2901
                place = Place(option, path, number)
                if text := _decode(line, place).strip():
                    yield parse(text, place)
    except OSError as error:
        raise ConfigError(option, str(path), f"cannot be read: {error.strerror}; {KINDS}") from None


def _decode(line: bytes, place: Place) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise place.wrong("is not UTF-8", "valid: UTF-8, e.g. from iconv -t UTF-8") from None


def _parse_line(text: str, place: Place) -> Prompt:
    return parse_record(_parse_json(text, place), place)


def _parse_json(text: str, place: Place) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise place.wrong(f"is not JSON ({error})") from None


READERS = dict.fromkeys(LINES, _parse_line) | dict.fromkeys(TEXT, text_prompt)
