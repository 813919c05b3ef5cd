"""The token ids of prompts, as vLLM's server makes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.training.prompts import Message, Prompt


def tokenize(prompt: Prompt, tokenizer: Any) -> list[int]:
    """Return the token ids that the target continues.

    A text gets the special tokens that the tokenizer puts before texts. A conversation is written
    by the chat template, which puts its own, up to where the answer begins. Tokens stay as given.

    Args:
        prompt: text, conversation or tokens.
        tokenizer: the target's, a transformers tokenizer.

    Raises:
        ConfigError: the chat template refuses the conversation, such as roles in this order.
    """
    if prompt.token_ids:
        return list(prompt.token_ids)
    if not prompt.messages:
        return list(tokenizer(prompt.text)["input_ids"])
    from jinja2.exceptions import TemplateError

    tools = {"tools": list(prompt.tools)} if prompt.tools else {}
    try:
        text = tokenizer.apply_chat_template(
            [_for_template(each) for each in prompt.messages],
            tokenize=False,
            add_generation_prompt=True,
            **tools,
        )
    except (TemplateError, TypeError, ValueError) as error:
        raise prompt.place.wrong(
            f"the chat template refuses it: {error}", "valid: a conversation that it accepts"
        ) from None
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _for_template(message: Message) -> Message:
    """Return a message as vLLM gives it to templates: with a content, arguments as objects."""
    written = {"content": "", **message}
    if calls := written.pop("tool_calls", None):
        written["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": _arguments(call["function"])}}
            for call in calls
        ]
    return written


def _arguments(function: Mapping[str, Any]) -> Mapping[str, Any]:
    found = function.get("arguments")
    if isinstance(found, str):
        try:
            found = json.loads(found)
        except ValueError:
            found = None
    return found if isinstance(found, Mapping) else {}
