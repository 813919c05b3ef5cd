"""What a store of hidden states holds per token, its size, and whether the disk has room."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training.atomic import write_whole

LAYOUT = "layout.json"
BYTES_BY_DTYPE = {"bfloat16": 2, "float16": 2, "float32": 4}
# Token id (int32) and loss mask (bool) of a token.
OTHER_BYTES = 5
# Headers and index, as a share of the rest, generously.
OVERHEAD = 0.01


@dataclass(frozen=True)
class Layout:
    """What a store holds. A second start has to ask for the same.

    Attributes:
        target: names the target, such as the hash of its ``config.json``.
        layers: whose states are stored; i is the output of the first i layers.
        hidden_size: width of a state.
        dtype: of the states, a key of :data:`BYTES_BY_DTYPE`.
    """

    target: str
    layers: tuple[int, ...]
    hidden_size: int
    dtype: str

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token with all its states."""
        states = len(self.layers) * self.hidden_size * BYTES_BY_DTYPE[self.dtype]
        return states + OTHER_BYTES

    def bytes_of(self, num_tokens: int) -> int:
        """Return about how many bytes some tokens take on the disk."""
        return int(num_tokens * self.bytes_per_token * (1 + OVERHEAD))

    def describe(self, num_tokens: int) -> str:
        """Return one line that announces the size."""
        return (
            f"hidden states: {num_tokens:,} tokens x {len(self.layers)} layers x "
            f"{self.hidden_size} x {BYTES_BY_DTYPE[self.dtype]} bytes = "
            f"{human(self.bytes_of(num_tokens))}"
        )


def require_room(option: str, folder: Path, layout: Layout, num_tokens: int) -> None:
    """Refuse what the disk does not hold.

    Args:
        option: option that named the folder.
        folder: where the store is or will be.
        layout: what it holds per token.
        num_tokens: tokens that are still to be written.

    Raises:
        ConfigError: less than the tokens' bytes are free.
    """
    existing = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    free, needed = shutil.disk_usage(existing).free, layout.bytes_of(num_tokens)
    if needed > free:
        most = int(free / (layout.bytes_per_token * (1 + OVERHEAD)))
        problem = (
            f"{layout.describe(num_tokens)}, and {human(free)} are free; valid: another disk, or "
            f"up to {most:,} tokens"
        )
        raise ConfigError(option, str(folder), problem)


def open_layout(option: str, folder: Path, layout: Layout) -> None:
    """Create the folder of a store, or check that it holds the same.

    Args:
        option: option that named the folder.
        folder: the store's folder.
        layout: what it is to hold.

    Raises:
        ConfigError: it holds something else.
    """
    path = folder / LAYOUT
    if not path.exists():
        if folder.is_dir() and any(each.name != f"{LAYOUT}.tmp" for each in folder.iterdir()):
            raise ConfigError(option, str(folder), "holds something else; valid: a new folder")
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(asdict(layout), indent=1)
        write_whole(path, lambda temporary: temporary.write_text(text))
        return
    found = read_layout(option, folder)
    for name, value in asdict(layout).items():
        if getattr(found, name) != value:
            problem = (
                f"holds hidden states with {name} {getattr(found, name)!r}, not {value!r}; valid: "
                "a new folder"
            )
            raise ConfigError(option, str(folder), problem)


def read_layout(option: str, folder: Path) -> Layout:
    """Return what a store holds.

    Raises:
        ConfigError: there is none, or another version wrote it.
    """
    try:
        found = json.loads((folder / LAYOUT).read_text())
        return Layout(**{**found, "layers": tuple(found["layers"])})
    except (OSError, ValueError, TypeError, KeyError):
        problem = f"has no {LAYOUT} that can be read; valid: a folder with hidden states"
        raise ConfigError(option, str(folder), problem) from None


def human(num_bytes: float) -> str:
    """Return a number of bytes as ``1.5 GB``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if num_bytes < 1000 or unit == "TB":
            return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1000
    raise AssertionError("the loop returns")
