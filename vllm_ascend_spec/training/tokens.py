"""The token ids of prompts, as vLLM's server makes them."""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.training.prompts import Prompt


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
            list(prompt.messages), tokenize=False, add_generation_prompt=True, **tools
        )
    except (TemplateError, TypeError, ValueError) as error:
        raise prompt.place.wrong(
            f"the chat template refuses it: {error}", "valid: a conversation that it accepts"
        ) from None
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])
