"""What is kept of a finished request: this and nothing else."""

from __future__ import annotations

import json
from dataclasses import dataclass

from vllm_ascend_spec.access_keys import ACCESS_KEY


@dataclass(frozen=True)
class Finished:
    """A finished request. It has no ids, names, addresses or times.

    Attributes:
        prompt_token_ids: what the target was given, the chat template applied.
        token_ids: what it answered, its end token included.
        finish_reason: vLLM's, ``stop`` or ``length``.
        prompt_text: the same as a text; None if it is not known.
        answer_text: the same as a text.
    """

    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    finish_reason: str
    prompt_text: str | None = None
    answer_text: str = ""

    def __len__(self) -> int:
        """Return the number of tokens."""
        return len(self.prompt_token_ids) + len(self.token_ids)

    @property
    def has_key(self) -> bool:
        """Whether the texts contain an access key of a well-known service."""
        return any(ACCESS_KEY.search(text or "") for text in (self.prompt_text, self.answer_text))

    def line(self, target: str | None, *, has_text: bool) -> bytes:
        """Return the line that is written, as ``training/prompts.py`` reads it.

        Args:
            target: name of the checkpoint that answered, see ``training/target.py``.
            has_text: whether the texts are written, too.
        """
        record = {
            "target": target,
            "prompt_token_ids": self.prompt_token_ids,
            "token_ids": self.token_ids,
            "finish_reason": self.finish_reason,
        }
        if has_text:
            record |= {"prompt_text": self.prompt_text, "answer_text": self.answer_text}
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        # Half of a surrogate pair is written as JSON's escape of it.
        return text.encode(errors="backslashreplace") + b"\n"
