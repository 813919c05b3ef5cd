"""The zoo's corpus: CPython's own sources, tests and documentation topics (PSF licence)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from .shapes import END_OF_TEXT, END_OF_TEXT_ID, VOCAB_SIZE

# Generated tables, GUI code and frozen copies teach a code model nothing.
SKIPPED_FOLDERS = frozenset(
    {"site-packages", "encodings", "idlelib", "turtledemo", "lib2to3", "__phello__", "__pycache__"}
)
MIN_FILE_CHARS = 200
HELD_OUT_ONE_IN = 33
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '# ' + message['role'] + ': ' + message['content'] + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '# assistant:\n' }}{% endif %}"
)


def list_files(stdlib: Path) -> list[Path]:
    """Return the corpus files below ``stdlib``, in a stable order."""
    found = []
    for path in sorted(stdlib.rglob("*.py")):
        folders = path.relative_to(stdlib).parts[:-1]
        if not any(name in SKIPPED_FOLDERS or name.startswith("config-") for name in folders):
            found.append(path)
    return found


def is_held_out(relative_name: str) -> bool:
    """Tell whether a file is kept for evaluation; decided by its name alone, so it never moves."""
    digest = hashlib.sha1(relative_name.encode(), usedforsecurity=False).hexdigest()
    return int(digest, 16) % HELD_OUT_ONE_IN == 0


def read_split(stdlib: Path) -> dict[str, list[tuple[str, str]]]:
    """Return ``{"train": [(name, text), …], "held": […]}``."""
    split: dict[str, list[tuple[str, str]]] = {"train": [], "held": []}
    for path in list_files(stdlib):
        name = path.relative_to(stdlib).as_posix()
        text = path.read_text(encoding="utf-8", errors="ignore")
        if len(text) >= MIN_FILE_CHARS:
            split["held" if is_held_out(name) else "train"].append((name, text))
    return split


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """Train a byte-level BPE tokenizer of ``VOCAB_SIZE`` entries."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def build(stdlib: Path, work: Path) -> None:
    """Write the tokenizer, the two token streams and the held-out texts to ``work``."""
    work.mkdir(parents=True, exist_ok=True)
    split = read_split(stdlib)
    tokenizer = train_tokenizer([text for _, text in split["train"]])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END_OF_TEXT, pad_token=END_OF_TEXT
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(work / "tokenizer")
    for part, documents in split.items():
        ids: list[int] = []
        for encoding in tokenizer.encode_batch([text for _, text in documents]):
            ids.append(END_OF_TEXT_ID)
            ids.extend(encoding.ids)
        torch.save(torch.tensor(ids, dtype=torch.int16), work / f"{part}.pt")
        chars = sum(len(text) for _, text in documents)
        print(f"{part}: {len(documents)} files, {chars} characters, {len(ids)} tokens", flush=True)
    (work / "held.json").write_text(json.dumps(dict(split["held"])))


class Windows:
    """Endless batches of token windows: epochs of disjoint windows at a random phase.

    Args:
        path: token stream saved by :func:`build`.
        seed: seed of the order of the windows.
        batch_size: windows per batch.
        length: tokens per window; each window carries one more, the last label.
    """

    def __init__(self, path: Path, seed: int, batch_size: int, length: int) -> None:
        self.tokens = torch.load(path)
        self.batch_size = batch_size
        self.length = length
        self.generator = torch.Generator().manual_seed(seed)
        self.queue: list[int] = []

    def next(self) -> torch.Tensor:
        """Return the next batch, int64 [batch_size, length + 1]."""
        if len(self.queue) < self.batch_size:
            phase = int(torch.randint(self.length, (1,), generator=self.generator))
            count = (len(self.tokens) - phase - 1) // self.length
            order = torch.randperm(count, generator=self.generator)
            self.queue = (order * self.length + phase).tolist()
        starts = [self.queue.pop() for _ in range(self.batch_size)]
        return torch.stack([self.tokens[s : s + self.length + 1] for s in starts]).long()


def held_out_batches(path: Path, length: int, limit: int = 96) -> list[torch.Tensor]:
    """Return up to ``limit`` held-out windows, in batches [≤ 8, length + 1]."""
    tokens = torch.load(path).long()
    # Spread over the stream, so that every held-out file has its share.
    count = (len(tokens) - 1) // length
    chosen = torch.linspace(0, count - 1, min(count, limit)).long().tolist()
    rows = torch.stack([tokens[i * length : i * length + length + 1] for i in chosen])
    return list(rows.split(8))
