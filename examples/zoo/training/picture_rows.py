"""Rows of text with pictures in them, for the models that see."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from transformers import PreTrainedTokenizerFast

from .loop import Recipe
from .measure import windows
from .pictures import every_picture, is_held_out
from .qwen25_vl import IMAGE_PAD, VISION_END, VISION_START, grid_of, patches_of

PICTURES_PER_ROW = 2


class Rows(NamedTuple):
    """A batch.

    Attributes:
        tokens: int64 [batch, length + 1].
        patches: float32 [num_patches, patch size], of all pictures in order.
        grids: int64 [num_pictures, 3].
    """

    tokens: torch.Tensor
    patches: torch.Tensor
    grids: torch.Tensor


class PictureRows:
    """Endless batches of windows of the text, with pictures and their lines between the tokens.

    A batch is one tensor, so that :func:`loop.fit` takes it: in front of a row's tokens are the
    indices of its pictures. :meth:`unpack` makes :class:`Rows` of it.

    Args:
        work: folder of the token streams and of the tokenizer.
        recipe: size of the batches and order of the windows.
        held_out: whether the pictures are those that are kept for evaluation.
    """

    def __init__(self, work: Path, recipe: Recipe, *, held_out: bool = False) -> None:
        self.windows = windows(work, recipe)
        self.generator = torch.Generator().manual_seed(recipe.seed)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(work / "tokenizer")
        pictures = list(every_picture())
        self.lines = [torch.tensor(tokenizer.encode(picture.line)) for picture in pictures]
        self.patches = [patches_of(picture) for picture in pictures]
        self.grids = [torch.tensor(grid_of(picture)) for picture in pictures]
        self.chosen = [i for i in range(len(pictures)) if is_held_out(i) == held_out]

    def next(self) -> torch.Tensor:
        """Return the next batch, int64 [batch, PICTURES_PER_ROW + length + 1]."""
        return torch.stack([self._row(text) for text in self.windows.next()])

    def unpack(self, batch: torch.Tensor) -> Rows:
        """Return tokens and pictures of what :meth:`next` returned."""
        indices = batch[:, :PICTURES_PER_ROW].flatten().tolist()
        patches = torch.cat([self.patches[i] for i in indices])
        return Rows(
            batch[:, PICTURES_PER_ROW:], patches, torch.stack([self.grids[i] for i in indices])
        )

    def _row(self, text: torch.Tensor) -> torch.Tensor:
        """Return picture indices and tokens of a row whose text is ``text`` [length + 1]."""
        indices, parts, used = [], [], 0
        for place in range(PICTURES_PER_ROW):
            index = self.chosen[self._random(len(self.chosen))]
            # Half of the row at most, so that both pictures are in it as a whole.
            before = self._random(len(text) // 4)
            grid = self.grids[index]
            tokens = torch.full((int(grid.prod()) // 4 + 2,), IMAGE_PAD)
            tokens[0], tokens[-1] = VISION_START, VISION_END
            parts += [text[used : used + before], tokens, self.lines[index]]
            indices.append(index)
            used += before
            assert sum(map(len, parts)) < len(text) * (place + 1) // PICTURES_PER_ROW
        parts.append(text[used:])
        return torch.cat([torch.tensor(indices), torch.cat(parts)[: len(text)]])

    def _random(self, limit: int) -> int:
        return int(torch.randint(limit, (1,), generator=self.generator))
