"""What ``train`` was asked for, as every phase reads it from the output folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vllm_ascend_spec.training.answers import Sampling
from vllm_ascend_spec.training.atomic import write_whole


@dataclass(frozen=True)
class Settings:
    """Options of ``train``, checked and with their defaults filled in.

    Attributes:
        model: the target's folder.
        method: a key of :data:`~vllm_ascend_spec.training.methods.METHODS`.
        prompts: files or folders with prompts.
        output: the folder that gets everything.
        begin_with: a head to go on from (``--from``), or None for random weights.
        holdout: prompts that are never trained on: below 1 their share, else their number.
        sampling: how the target answers.
        max_model_len: limit of prompt and answer together, in tokens.
        dtype: of the target's weights and of the hidden states, as vLLM names it.
        layers: whose outputs the head reads; i is the output of the first i layers.
        draft_vocab_size: tokens of the head, or None for all of the target's.
        num_speculative_tokens: drafts per step that the head is trained and measured for.
        steps: steps of the optimizer, or None for the recipe's; from scratch one epoch or more.
        learning_rate: the highest.
        nproc_per_node: processes that train, one for each device.
        seed: of weights, order and answers.
        engine: further arguments of ``vllm.LLM`` for the target's engines.
        library: further options of ``speculators train``, as words.
        prompts_hash: says which prompts are used, of those that the files hold.
        target_hash: says which checkpoint the target is, see ``target.py``.
        begin_hash: says which one the head of ``--from`` is; empty without.
        checkpoint_minutes: the trainer's checkpoints are not further apart.
    """

    model: Path
    method: str
    prompts: tuple[Path, ...]
    output: Path
    begin_with: Path | None = None
    holdout: float = 0.05
    sampling: Sampling = field(default_factory=Sampling)
    max_model_len: int = 2048
    dtype: str = "auto"
    layers: tuple[int, ...] = ()
    draft_vocab_size: int | None = None
    num_speculative_tokens: int = 3
    steps: int | None = None
    learning_rate: float = 1e-4
    nproc_per_node: int = 1
    seed: int = 0
    engine: dict[str, Any] = field(default_factory=dict)
    library: tuple[str, ...] = ()
    prompts_hash: str = ""
    target_hash: str = ""
    begin_hash: str = ""
    checkpoint_minutes: float = 10

    def save(self, path: Path) -> None:
        """Write them as JSON; the file is whole or the old one."""
        text = json.dumps(asdict(self), indent=1, default=str)
        write_whole(path, lambda temporary: temporary.write_text(text))

    @classmethod
    def load(cls, path: Path) -> Settings:
        """Read what :meth:`save` wrote."""
        found = json.loads(path.read_text())
        begin = found["begin_with"]
        return cls(
            **{
                **found,
                "model": Path(found["model"]),
                "prompts": tuple(map(Path, found["prompts"])),
                "output": Path(found["output"]),
                "begin_with": None if begin is None else Path(begin),
                "sampling": Sampling(**found["sampling"]),
                "layers": tuple(found["layers"]),
                "library": tuple(found["library"]),
            }
        )
