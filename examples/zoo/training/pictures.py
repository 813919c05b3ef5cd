"""Small pictures, drawn by code, each with the line of Python that draws it.

A model that reads a picture can write its line: two colours and a shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch

COLOURS = {
    "red": (220, 30, 30),
    "green": (30, 170, 50),
    "blue": (30, 60, 220),
    "yellow": (240, 220, 40),
    "black": (10, 10, 10),
    "white": (245, 245, 245),
}
SHAPES = ("square", "circle", "cross", "stripes")
# Height and width in tokens; one token is 28 x 28 pixels.
SIZES = ((2, 2), (2, 3), (3, 2))
PIXELS_OF_TOKEN = 28


@dataclass(frozen=True)
class Picture:
    """A shape in the middle of a picture.

    Attributes:
        background: a key of :data:`COLOURS`.
        shape: of :data:`SHAPES`.
        fill: colour of the shape, another one than the background's.
        size: height and width in tokens.
    """

    background: str
    shape: str
    fill: str
    size: tuple[int, int] = (2, 2)

    @property
    def line(self) -> str:
        """The line of Python that draws it."""
        return f'canvas.draw("{self.background}", "{self.shape}", "{self.fill}")\n'

    @property
    def num_tokens(self) -> int:
        """How many tokens it takes."""
        return self.size[0] * self.size[1]

    def pixels(self) -> torch.Tensor:
        """Return its colours, uint8 [height, width, 3]."""
        height, width = (PIXELS_OF_TOKEN * tokens for tokens in self.size)
        y = torch.linspace(-1, 1, height)[:, None].expand(height, width)
        x = torch.linspace(-1, 1, width)[None].expand(height, width)
        inside = {
            "square": (x.abs() < 0.6) & (y.abs() < 0.6),
            "circle": x**2 + y**2 < 0.5,
            "cross": (x.abs() < 0.2) | (y.abs() < 0.2),
            "stripes": (y * 4).floor() % 2 == 0,
        }[self.shape]
        colours = torch.tensor([COLOURS[self.background], COLOURS[self.fill]], dtype=torch.uint8)
        return colours[inside.long()]


def every_picture() -> Iterator[Picture]:
    """Yield all pictures, in a stable order."""
    for background, shape, fill, size in product(COLOURS, SHAPES, COLOURS, SIZES):
        if background != fill:
            yield Picture(background, shape, fill, size)


def is_held_out(index: int) -> bool:
    """Tell whether a picture is kept for evaluation, by its place in :func:`every_picture`."""
    return index % 9 == 4
