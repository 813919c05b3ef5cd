"""A store of training samples on disk: token ids, loss mask and the target's hidden states.

A folder holds ``layout.json``, shards (``shard-00000.safetensors``) and ``index.jsonl`` with a line
for each shard. A shard holds its samples one after the other:

- ``token_ids``, int32 [num_tokens], and ``loss_mask``, bool [num_tokens];
- ``hidden_states``, [num_tokens, num_layers, hidden_size], in the layout's dtype;
- in its metadata the samples' ids and lengths, so the index can be written again from the shards.

A shard gets its name when it is whole; a process that is killed loses the samples since the last
one. Of each sample ``token_ids`` and ``hidden_states`` are what speculators 0.9 reads
(``hs_connectors.transfer.HiddenStatesTransfer``).
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training.atomic import TEMPORARY, append_line, cut_torn_line, write_whole
from vllm_ascend_spec.training.shard_layout import Layout, human, open_layout, read_layout

if TYPE_CHECKING:
    import torch

INDEX, LOCK, SHARDS = "index.jsonl", "lock", "shard-*.safetensors"
SHARD_BYTES = 256 << 20
OPEN_SHARDS = 16
IDS, LENGTHS = "ids", "lengths"


@dataclass(frozen=True)
class Sample:
    """One prompt with its answer.

    Attributes:
        id: the prompt's.
        token_ids: int64 or int32 [num_tokens].
        loss_mask: bool [num_tokens], true where a token is trained on.
        hidden_states: [num_tokens, num_layers, hidden_size].
    """

    id: str
    token_ids: torch.Tensor
    loss_mask: torch.Tensor
    hidden_states: torch.Tensor


@dataclass(frozen=True)
class Stored:
    """Where a sample is.

    Attributes:
        shard: name of its file.
        begin: its first token in there.
        length: number of its tokens.
    """

    shard: str
    begin: int
    length: int


class ShardWriter:
    """Writes samples. Only one may be open for a folder.

    Args:
        folder: the store's folder.
        layout: what it holds.
        shard_bytes: a shard is written when its samples take so many bytes.
        found: the samples that are there.
    """

    def __init__(
        self, folder: Path, layout: Layout, shard_bytes: int, found: dict[str, Stored]
    ) -> None:
        self._folder = folder
        self._layout = layout
        self._tokens_per_shard = max(1, shard_bytes // layout.bytes_per_token)
        self._stored = found
        self._next = _number_after(folder)
        self._pending: dict[str, Sample] = {}
        self._pending_tokens = 0

    def __contains__(self, sample_id: str) -> bool:
        return sample_id in self._stored or sample_id in self._pending

    def add(self, sample: Sample) -> None:
        """Add a sample, unless there is one of its id.

        Raises:
            ValueError: shapes or dtype are not the layout's, or a state is not finite.
        """
        if sample.id in self:
            return
        self._check(sample)
        self._pending[sample.id] = sample
        self._pending_tokens += len(sample.token_ids)
        if self._pending_tokens >= self._tokens_per_shard:
            self.flush()

    def flush(self) -> None:
        """Write the pending samples as a shard."""
        if not self._pending:
            return
        path = self._folder / f"shard-{self._next:05}.safetensors"
        lengths = {each.id: len(each.token_ids) for each in self._pending.values()}
        write_whole(path, partial(_save, list(self._pending.values())))
        append_line(self._folder / INDEX, _index_line(path.name, lengths))
        self._stored.update(_places(path.name, lengths))
        self._next += 1
        self._pending = {}
        self._pending_tokens = 0

    def _check(self, sample: Sample) -> None:
        length, layout = len(sample.token_ids), self._layout
        shape = (length, len(layout.layers), layout.hidden_size)
        found = tuple(sample.hidden_states.shape), str(sample.hidden_states.dtype).split(".")[-1]
        if not length or found != (shape, layout.dtype):
            raise ValueError(
                f"sample {sample.id}: hidden states are {found[1]} {list(found[0])}; expected: "
                f"{layout.dtype} {list(shape)}, one token or more"
            )
        if tuple(sample.loss_mask.shape) != (length,):
            raise ValueError(
                f"sample {sample.id}: loss mask is {list(sample.loss_mask.shape)}; expected: "
                f"[{length}]"
            )
        if not sample.hidden_states.isfinite().all():
            raise ValueError(f"sample {sample.id}: a hidden state is infinite or not a number")


class ShardReader:
    """Reads samples by id.

    Args:
        folder: the store's folder.
        option: option that named it, for errors.

    Raises:
        ConfigError: there is no store, or a shard is damaged or missing.
    """

    def __init__(self, folder: Path, option: str = "--output") -> None:
        self.layout = read_layout(option, folder)
        self._folder = folder
        self._stored = _read_index(option, folder)
        self._open = lru_cache(maxsize=OPEN_SHARDS)(self._open_shard)

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def lengths(self) -> Mapping[str, int]:
        """Number of tokens of each sample by its id, in the order of the ids."""
        return {each: self._stored[each].length for each in sorted(self._stored)}

    def read(self, sample_id: str) -> Sample:
        """Return a sample; its token ids are int64."""
        place = self._stored[sample_id]
        shard = self._open(place.shard)
        rows = slice(place.begin, place.begin + place.length)
        return Sample(
            sample_id,
            shard.get_slice("token_ids")[rows].long(),
            shard.get_slice("loss_mask")[rows],
            shard.get_slice("hidden_states")[rows],
        )

    def _open_shard(self, name: str) -> Any:
        from safetensors import safe_open

        return safe_open(self._folder / name, framework="pt")


@contextmanager
def open_writer(
    option: str, folder: Path, layout: Layout, shard_bytes: int = SHARD_BYTES
) -> Iterator[ShardWriter]:
    """Open a store for writing, new or begun; write what is pending at the end.

    Args:
        option: option that named the folder.
        folder: the store's folder.
        layout: what it holds.
        shard_bytes: how large a shard gets; so much memory is used, and lost at most.

    Raises:
        ConfigError: the folder holds something else, or another process writes to it.
    """
    open_layout(option, folder, layout)
    with (folder / LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            problem = "another process writes hidden states there; valid: wait for its end"
            raise ConfigError(option, str(folder), problem) from None
        for torn in folder.glob(f"*{TEMPORARY}"):
            torn.unlink()
        cut_torn_line(folder / INDEX)
        writer = ShardWriter(folder, layout, shard_bytes, _mend_index(option, folder))
        yield writer
        # Not after an exception: what is whole is stored already.
        writer.flush()


def _save(samples: list[Sample], path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    tensors = {
        "token_ids": torch.cat([each.token_ids.to(torch.int32) for each in samples]),
        "loss_mask": torch.cat([each.loss_mask.to(torch.bool) for each in samples]),
        "hidden_states": torch.cat([each.hidden_states for each in samples]),
    }
    about = {
        IDS: json.dumps([each.id for each in samples]),
        LENGTHS: json.dumps([len(each.token_ids) for each in samples]),
    }
    save_file(tensors, path, about)


def _index_line(shard: str, lengths: Mapping[str, int]) -> str:
    return json.dumps({"shard": shard, IDS: [*lengths], LENGTHS: [*lengths.values()]})


def _places(shard: str, lengths: Mapping[str, int]) -> Iterator[tuple[str, Stored]]:
    begins = accumulate(lengths.values(), initial=0)
    for (sample_id, length), begin in zip(lengths.items(), begins, strict=False):
        yield sample_id, Stored(shard, begin, length)


def _mend_index(option: str, folder: Path) -> dict[str, Stored]:
    """Return the samples of an index, after adding the shards written just before a kill."""
    indexed = {line["shard"] for line in _index_lines(option, folder)}
    for path in sorted(folder.glob(SHARDS)):
        if path.name not in indexed:
            append_line(folder / INDEX, _index_line(path.name, _lengths_in(option, path)))
    return _read_index(option, folder)


def _lengths_in(option: str, path: Path) -> dict[str, int]:
    """Return the lengths of the samples of a shard by their ids, from its metadata."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as shard:
            about = shard.metadata()
        return dict(zip(json.loads(about[IDS]), json.loads(about[LENGTHS]), strict=True))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise _damaged(option, path, str(error)) from None


def _read_index(option: str, folder: Path) -> dict[str, Stored]:
    found: dict[str, Stored] = {}
    for line in _index_lines(option, folder):
        path = folder / line["shard"]
        lengths = _lengths_in(option, path)
        if lengths != dict(zip(line[IDS], line[LENGTHS], strict=True)):
            raise _damaged(option, path, f"it is not what {INDEX} says")
        found.update(_places(path.name, lengths))
    return found


def _index_lines(option: str, folder: Path) -> Iterable[dict[str, Any]]:
    path = folder / INDEX
    if not path.exists():
        return
    for number, line in enumerate(path.read_text().splitlines(keepends=True), 1):
        if line.endswith("\n"):  # else a writer is at it, or was killed
            try:
                yield json.loads(line)
            except ValueError:
                raise ConfigError(option, str(path), f"line {number} is damaged") from None


def _damaged(option: str, path: Path, why: str) -> ConfigError:
    size = human(path.stat().st_size) if path.exists() else "missing"
    problem = f"shard {path.name} ({size}) is damaged: {why}; delete it, and its line in {INDEX}"
    return ConfigError(option, str(path.parent), problem)


def _number_after(folder: Path) -> int:
    """Return the number of the next shard."""
    return 1 + max((int(each.stem.split("-")[1]) for each in folder.glob(SHARDS)), default=-1)
