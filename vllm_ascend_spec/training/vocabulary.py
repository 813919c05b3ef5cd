"""The reduced vocabulary of a draft: the tokens that answers use most, and every special token.

Two tables go into the draft's checkpoint, in the form that speculators 0.9
(``speculators.train.vocab_mapping``) writes and vLLM
(``vllm/model_executor/models/llama_eagle3.py``) reads:

- ``d2t``, int64 [draft_vocab_size]: what to add to a draft token to get the target's;
- ``t2d``, bool [vocab_size]: which of the target's tokens the draft has. vLLM does not read it.

The draft's tokens are in the order of the target's.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

from vllm_ascend_spec.errors import ConfigError

OPTION = "--draft-vocab-size"


@dataclass(frozen=True)
class DraftVocabulary:
    """Which of the target's tokens a draft has.

    Attributes:
        tokens: the target's ids, in rising order; the draft's id is the place in here.
        vocab_size: number of the target's tokens.
        share: share of the counted tokens that the draft has, 0 to 1; 1 if none were counted.
        unseen: how many of its tokens were never counted: special ones, and what fills it up.
    """

    tokens: tuple[int, ...]
    vocab_size: int
    share: float
    unseen: int

    def d2t(self) -> list[int]:
        """Return for each draft token what to add to it to get the target's."""
        return [token - own for own, token in enumerate(self.tokens)]

    def t2d(self) -> list[bool]:
        """Return for each of the target's tokens whether the draft has it."""
        known = [False] * self.vocab_size
        for token in self.tokens:
            known[token] = True
        return known

    def describe(self) -> str:
        """Return one line for the log."""
        return (
            f"draft vocabulary: {len(self.tokens):,} of {self.vocab_size:,} tokens, which are "
            f"{self.share:.2%} of the answers' text; {self.unseen:,} of them are in no answer"
        )

    def save(self, folder: Path) -> tuple[Path, Path]:
        """Write ``d2t.npy`` and ``t2d.npy``, which speculators' trainer reads.

        They are for its options ``--d2t-path`` and ``--t2d-path``.

        Returns:
            The two paths.
        """
        import numpy as np

        paths = folder / "d2t.npy", folder / "t2d.npy"
        np.save(paths[0], np.array(self.d2t(), np.int64))
        np.save(paths[1], np.array(self.t2d(), np.bool_))
        return paths


def count_tokens(samples: Iterable[tuple[Sequence[int], Sequence[int]]]) -> Counter[int]:
    """Count the tokens that are trained on.

    Args:
        samples: of each, its token ids and as many values that are not 0 where there is a loss.
    """
    counts: Counter[int] = Counter()
    for token_ids, loss_mask in samples:
        counts.update(compress(token_ids, loss_mask))
    return counts


def choose_tokens(
    counts: Mapping[int, int], size: int, vocab_size: int, special: Iterable[int] = ()
) -> DraftVocabulary:
    """Choose the tokens of a draft: special ones, then by count; of equal counts the lower id.

    Args:
        counts: how often each of the target's tokens was counted.
        size: number of tokens of the draft.
        vocab_size: number of tokens of the target.
        special: ids that are always among them; those that the target has no rows for are left out.

    Raises:
        ConfigError: the size is more than the target's or does not hold the special tokens, or a
            token was counted that the target does not have.
    """
    always = {token for token in special if 0 <= token < vocab_size}
    if not 1 <= size <= vocab_size:
        raise ConfigError(OPTION, size, f"valid: 1 to {vocab_size}, the target's vocab_size")
    if size < len(always):
        problem = f"valid: {len(always)} or more, as many as there are special tokens"
        raise ConfigError(OPTION, size, problem)
    for token in counts:
        if not 0 <= token < vocab_size:
            problem = f"token {token} was counted; the target's are 0 to {vocab_size - 1}"
            raise ConfigError(OPTION, size, problem)
    ranked = sorted(set(counts) - always, key=lambda token: (-counts[token], token))
    chosen = always.union(ranked[: size - len(always)])
    # With few answers the lowest ids fill it up: bytes and the most frequent merges.
    rest = (token for token in range(vocab_size) if token not in chosen)
    chosen = chosen.union(next(rest) for _ in range(size - len(chosen)))
    known = sum(counts.get(token, 0) for token in chosen)
    total = sum(counts.values())
    unseen = sum(not counts.get(token) for token in chosen)
    return DraftVocabulary(
        tuple(sorted(chosen)), vocab_size, known / total if total else 1.0, unseen
    )


def tokens_of_head(
    head: Path, vocab_size: int, counts: Mapping[int, int]
) -> DraftVocabulary | None:
    """Return the tokens that a head has, or None if it has all of the target's.

    Args:
        head: the head's folder.
        vocab_size: number of tokens of the target.
        counts: how often each of the target's tokens was counted.

    Raises:
        ConfigError: the head is for a target with fewer tokens.
    """
    from safetensors import safe_open

    for path in sorted(head.glob("*.safetensors")):
        with safe_open(path, framework="np") as file:
            if "d2t" not in file.keys():  # noqa: SIM118
                continue
            offsets = file.get_tensor("d2t").tolist()
        tokens = tuple(own + offset for own, offset in enumerate(offsets))
        if not all(0 <= token < vocab_size for token in tokens):
            problem = f"its d2t names tokens beyond the target's {vocab_size}; valid: another head"
            raise ConfigError("--from", str(head), problem)
        known, total = sum(counts.get(token, 0) for token in tokens), sum(counts.values())
        unseen = sum(not counts.get(token) for token in tokens)
        return DraftVocabulary(tokens, vocab_size, known / total if total else 1.0, unseen)
    return None


def special_tokens(target: Path) -> set[int]:
    """Return the ids of the special tokens of a checkpoint.

    These are the special ones among its tokenizer's added tokens, and what ``config.json`` and
    ``generation_config.json`` name as begin, end and padding.

    Args:
        target: the checkpoint's folder.
    """
    found: set[int] = set()
    for name in ("config.json", "generation_config.json"):
        config = _read_object(target / name)
        for part in (config, config.get("text_config")):
            found.update(_ids_named_in(part))
    for token in _read_object(target / "tokenizer.json").get("added_tokens") or ():
        if token.get("special"):
            found.add(token["id"])
    decoder = _read_object(target / "tokenizer_config.json").get("added_tokens_decoder") or {}
    found.update(int(number) for number, token in decoder.items() if token.get("special"))
    return found


def _ids_named_in(config: Any) -> Iterable[int]:
    if not isinstance(config, Mapping):
        return
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        value = config.get(key)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, int) and not isinstance(each, bool):
                yield each


def _read_object(path: Path) -> dict[str, Any]:
    """Return a JSON object from a file, empty if there is no such file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError("MODEL", str(path), f"cannot be read: {error}") from None
    return found if isinstance(found, dict) else {}
