"""Prompts of a file or folder: their forms, ids that last, and the held-out split.

A record gives a prompt in one of four forms. The first one that it has counts:

- ``prompt_token_ids``: its tokens, as a server records them, with the answer if it has one
  (``token_ids``, ``finish_reason``) and the hash of the ``target`` that gave it;
- ``messages``: a conversation as ``/v1/chat/completions`` takes it, with ``tools`` if it has any;
- ``conversations``: the same as ShareGPT writes it;
- ``prompt``: a text that the target continues, as ``/v1/completions`` takes it.

A conversation is cut after its last message that asks for an answer. Other keys are ignored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm_ascend_spec.errors import ConfigError

VALID = (
    'valid: {"prompt": "…"}, {"messages": [{"role": "user", "content": "…"}]} or '
    '{"conversations": [{"from": "human", "value": "…"}]}'
)
# ShareGPT's names of roles.
SHAREGPT_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "system": "system",
    "tool": "tool",
}
ROLES = ("system", "developer", "user", "assistant", "tool")
# vLLM's reasons why an answer ended that do not mean that it is only a part.
WHOLE = ("stop", "length")
# The target answers after these.
ASKING = ("user", "tool")
ID_LETTERS = 32
Message = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where a prompt was read, for errors.

    Attributes:
        option: option that named the file or folder.
        path: the file.
        number: its line or row, from 1.
        unit: ``line`` or ``row``.
    """

    option: str
    path: Path
    number: int
    unit: str = "line"

    def wrong(self, problem: str, valid: str = VALID) -> ConfigError:
        """Return an error about this place."""
        # The number comes with the problem, not after the path: a long path is cut.
        told = f"{self.unit} {self.number}: {problem}; {valid}"
        return ConfigError(self.option, str(self.path), told)


@dataclass(frozen=True)
class Recorded:
    """An answer that was recorded with a prompt's tokens.

    Attributes:
        target: hash of the checkpoint that answered, see
            :func:`~vllm_ascend_spec.training.target.target_hash`.
        token_ids: what it answered.
        finish_reason: ``stop`` or ``length``.
    """

    target: str
    token_ids: tuple[int, ...]
    finish_reason: str


@dataclass(frozen=True)
class Prompt:
    """One prompt.

    Attributes:
        id: 32 hexadecimal digits that depend on the prompt's content alone.
        text: what the target continues; empty if there are messages.
        messages: the conversation; its last message is the user's or a tool's.
        tools: tools that the conversation may call.
        place: where it was read.
        token_ids: its tokens if it is given by them, else empty.
        recorded: the answer that was recorded with them, if there is one.
    """

    id: str
    text: str
    messages: tuple[Message, ...]
    tools: tuple[Any, ...]
    place: Place = field(compare=False)
    token_ids: tuple[int, ...] = ()
    recorded: Recorded | None = None


def parse_record(record: Any, place: Place) -> Prompt:
    """Return the prompt of one record.

    Args:
        record: a line's JSON value, or a row of a dataset.
        place: where it was read.

    Raises:
        ConfigError: it is no prompt.
    """
    if not isinstance(record, Mapping):
        raise place.wrong("is not a JSON object")
    # Datasets have a column for each key, with None where a row does not have it.
    for key, parse in FORMS.items():
        if record.get(key) is not None:
            return parse(record, place)
    raise place.wrong('has no "prompt", "messages" or "conversations"')


def text_prompt(text: str, place: Place) -> Prompt:
    """Return the prompt that is a text.

    Raises:
        ConfigError: the text is no Unicode text.
    """
    return Prompt(_id_of({"prompt": text}, place), text, (), (), place)


def _parse_text(record: Mapping[str, Any], place: Place) -> Prompt:
    text = record["prompt"]
    if isinstance(text, list):
        raise place.wrong('"prompt" is a list; name it "messages" if it is a conversation')
    if not isinstance(text, str) or not text.strip():
        raise place.wrong('"prompt" has to be a text that is not empty')
    return text_prompt(text, place)


def _parse_messages(record: Mapping[str, Any], place: Place) -> Prompt:
    messages = _list_of(record, "messages", place)
    return _conversation(
        [_message(each, n, place) for n, each in enumerate(messages)], record, place
    )


def _parse_sharegpt(record: Mapping[str, Any], place: Place) -> Prompt:
    turns = _list_of(record, "conversations", place)
    return _conversation([_turn(each, n, place) for n, each in enumerate(turns)], record, place)


def _parse_tokens(record: Mapping[str, Any], place: Place) -> Prompt:
    token_ids = _tokens_of(record, "prompt_token_ids", place)
    found = _id_of({"prompt_token_ids": token_ids}, place)
    return Prompt(found, "", (), (), place, tuple(token_ids), _recorded_in(record, place))


def _recorded_in(record: Mapping[str, Any], place: Place) -> Recorded | None:
    """Return the answer of a record if it is whole and says which target gave it."""
    target, reason = record.get("target"), record.get("finish_reason")
    if not record.get("token_ids") or not isinstance(target, str) or reason not in WHOLE:
        return None
    return Recorded(target, tuple(_tokens_of(record, "token_ids", place)), reason)


def _tokens_of(record: Mapping[str, Any], key: str, place: Place) -> list[int]:
    found = _list_of(record, key, place)
    if not all(type(token) is int and token >= 0 for token in found):
        raise place.wrong(f'"{key}" has to be a list of token ids, whole numbers from 0 on')
    return found


FORMS = {
    "prompt_token_ids": _parse_tokens,
    "messages": _parse_messages,
    "conversations": _parse_sharegpt,
    "prompt": _parse_text,
}


def _list_of(record: Mapping[str, Any], key: str, place: Place) -> list[Any]:
    found = record[key]
    if not isinstance(found, list) or not found:
        raise place.wrong(f'"{key}" has to be a list that is not empty')
    return found


def _message(given: Any, n: int, place: Place) -> Message:
    role = given.get("role") if isinstance(given, Mapping) else None
    if role not in ROLES:
        raise place.wrong(f'"messages"[{n}] has no "role" of {", ".join(ROLES)}')
    # Rows of a dataset have None for keys that only other messages have.
    message = {key: value for key, value in given.items() if value is not None}
    content = message.get("content")
    if isinstance(content, list):
        content = message["content"] = _joined(content, n, place)
    if not isinstance(content, str) and not (role == "assistant" and message.get("tool_calls")):
        raise place.wrong(f'"messages"[{n}] has no text as its "content"')
    if not _are_calls(message.get("tool_calls", [])):
        raise place.wrong(f'"messages"[{n}] has "tool_calls" that are not a list of functions')
    return message


def _are_calls(given: Any) -> bool:
    """Tell whether these are calls of functions, which is all that vLLM's server takes."""
    return isinstance(given, list) and all(
        isinstance(call, Mapping) and isinstance(call.get("function"), Mapping) for call in given
    )


def _joined(parts: list[Any], n: int, place: Place) -> str:
    """Return the text of a content that is given as parts, as vLLM joins them."""
    for part in parts:
        if not isinstance(part, Mapping) or not isinstance(part.get("text"), str):
            raise place.wrong(
                f'"messages"[{n}] has a part that is not text, which is all that is read'
            )
    return "\n".join(part["text"] for part in parts)


def _turn(given: Any, n: int, place: Place) -> Message:
    role = SHAREGPT_ROLES.get(str(given.get("from"))) if isinstance(given, Mapping) else None
    if role is None:
        raise place.wrong(f'"conversations"[{n}] has no "from" of {", ".join(SHAREGPT_ROLES)}')
    if not isinstance(given.get("value"), str):
        raise place.wrong(f'"conversations"[{n}] has no text as its "value"')
    return {"role": role, "content": given["value"]}


def _conversation(messages: list[Message], record: Mapping[str, Any], place: Place) -> Prompt:
    """Return the conversation up to the last message that asks for an answer."""
    while messages and messages[-1]["role"] not in ASKING:
        messages.pop()
    if not messages:
        raise place.wrong("the conversation has no message of the user's")
    tools = record.get("tools") or []
    if not isinstance(tools, list):
        raise place.wrong('"tools" has to be a list')
    found = _id_of({"messages": messages, "tools": tools}, place)
    return Prompt(found, "", tuple(messages), tuple(tools), place)


def _id_of(content: Mapping[str, Any], place: Place) -> str:
    written = json.dumps(content, sort_keys=True, ensure_ascii=False, default=str)
    try:
        return hashlib.sha256(written.encode()).hexdigest()[:ID_LETTERS]
    except UnicodeEncodeError:
        raise place.wrong("has half of a surrogate pair, which is no character") from None


def split_held_out(ids: Iterable[str], holdout: float) -> tuple[set[str], set[str]]:
    """Split prompts into those to train on and those held out.

    The split depends on the ids alone, not on their order. With a share, a prompt stays on its
    side when others are added, unless it is the only one held out.

    Args:
        ids: ids of prompts.
        holdout: below 1 the share of prompts to hold out, at least one prompt; else their number.

    Returns:
        Ids to train on, and ids held out.

    Raises:
        ConfigError: ``holdout`` is no such number, or leaves nothing to train on.
    """
    ranked = sorted(set(ids))
    if not (0 < holdout < 1 or (holdout >= 1 and float(holdout).is_integer())):
        problem = "valid: a number of prompts, or a share of them between 0 and 1"
        raise ConfigError("--holdout", holdout, problem)
    if holdout < 1:
        # Ids are hashes: as fractions they are spread evenly.
        count = max(1, sum(int(each, 16) < holdout * 16**ID_LETTERS for each in ranked))
    else:
        count = int(holdout)
    if count >= len(ranked):
        problem = f"leaves nothing to train on: there are {len(ranked)} different prompts"
        raise ConfigError("--holdout", holdout, problem)
    return set(ranked[count:]), set(ranked[:count])
