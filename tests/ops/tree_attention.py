"""Batches for ``tree_attention``, and what its rows attend to by two other ways.

:func:`dense` follows each row's path in double precision. :func:`path_by_path` does what a CPU
does: it moves keys within the cache and attends as a chain does (``worker/tree_plan.py``).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from vllm_ascend_spec.ops.tree_attention import tree_attention
from vllm_ascend_spec.worker.tree_plan import StepTrees, bits_of, plan_rounds

# Rounding of products and sums, of values that are about 1.
TOLERANCES = {torch.float32: 2e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@dataclass(frozen=True)
class Request:
    """One request of a batch.

    Attributes:
        context: number of tokens before its rows.
        text: number of its rows up to the text's last token.
        parents: of its drafts.
    """

    context: int
    text: int = 1
    parents: tuple[int, ...] = ()

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self.text + len(self.parents)

    @property
    def length(self) -> int:
        """Number of tokens."""
        return self.context + self.num_rows

    def seen_by(self, row: int) -> list[int]:
        """Return the tokens that a row sees, in the order of their positions."""
        node, path = row - self.text, []
        while node >= 0:
            path.append(self.context + self.text + node)
            node = self.parents[node]
        end = self.context + min(row + 1, self.text)
        return [*range(end), *reversed(path)]


@dataclass(frozen=True)
class Batch:
    """Arguments of ``tree_attention`` for some requests, in which all else is at random.

    Attributes:
        requests: the requests.
        options: arguments by name.
        padding: number of requests without rows, and of rows, behind them.
    """

    requests: Sequence[Request]
    dtype: torch.dtype = torch.float32
    num_heads: int = 4
    num_kv_heads: int = 2
    head_size: int = 32
    block_size: int = 16
    seed: int = 0
    padding: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """Return new arguments, without the output."""
        numbers = torch.Generator().manual_seed(self.seed)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=numbers).to(self.dtype)

        num_rows = [request.num_rows for request in self.requests] + [0] * self.padding
        starts = [0, *itertools.accumulate(num_rows)]
        most = max(-(-request.length // self.block_size) for request in self.requests)
        num_blocks = len(self.requests) * most + 1
        # As vLLM lays keys and values out: side by side, heads before the tokens of a block.
        cache = random(num_blocks, self.num_kv_heads, self.block_size, 2 * self.head_size)
        cache[0] = float("nan")  # vLLM's block of padding
        table = torch.randperm(num_blocks - 1, generator=numbers)[: num_blocks - 1] + 1
        table = torch.cat([table, table.new_zeros(self.padding * most)]).view(-1, most)
        keys, values = cache.transpose(1, 2).split(self.head_size, dim=-1)
        rows = starts[-1] + self.padding
        return {
            "query": random(rows, self.num_heads, self.head_size),
            "key_cache": keys,
            "value_cache": values,
            "seen": self.seen(rows),
            "query_start_loc": torch.tensor(starts, dtype=torch.int32),
            "seq_lens": torch.tensor(
                [request.length for request in self.requests] + [0] * self.padding,
                dtype=torch.int32,
            ),
            "block_table": table.int(),
            "scale": self.head_size**-0.5,
            **self.options,
        }

    def seen(self, num_rows: int) -> torch.Tensor:
        """Return what each row sees, int64 [num_rows]."""
        seen, end = torch.full((num_rows,), -1), 0
        for request in self.requests:
            end += request.num_rows
            count = len(request.parents) + 1
            seen[end - count : end] = torch.from_numpy(bits_of(request.parents))
        return seen


def attend(arguments: dict[str, Any], backend: str) -> torch.Tensor:
    """Return the output of a backend; where it wrote nothing, it is 7."""
    output = torch.full_like(arguments["query"], 7)
    tree_attention(**arguments, output=output, backend=backend)
    return output


def tokens_of(cache: torch.Tensor, blocks: torch.Tensor, length: int) -> torch.Tensor:
    """Return the cached keys or values of a request, float64 [length, num_kv_heads, head_size]."""
    return cache[blocks.long()].flatten(0, 1)[:length].double()


def weighted(
    query: torch.Tensor,  # [num_heads, head_size]
    keys: torch.Tensor,  # [num_seen, num_kv_heads, head_size]
    values: torch.Tensor,  # [num_seen, num_kv_heads, head_size]
    arguments: dict[str, Any],
) -> torch.Tensor:
    """Return the attention of one row, float64 [num_heads, head_size]."""
    window = arguments.get("window") or keys.shape[0]
    group = query.shape[0] // keys.shape[1]
    keys, values = (x[-window:].repeat_interleave(group, dim=1) for x in (keys, values))
    scores = torch.einsum("hd,khd->hk", query.double(), keys) * arguments["scale"]
    if cap := arguments.get("soft_cap"):
        scores = cap * torch.tanh(scores / cap)
    if (sinks := arguments.get("sinks")) is not None:
        scores = torch.cat([scores, sinks.double()[:, None]], dim=1)
    weights = scores.softmax(dim=1)[:, : keys.shape[0]]
    return torch.einsum("hk,khd->hd", weights, values)


def dense(requests: Sequence[Request], arguments: dict[str, Any]) -> torch.Tensor:
    """Return what each row has to be, float64 [num_rows, num_heads, head_size]."""
    found, query = [], arguments["query"]
    for request, blocks in zip(requests, arguments["block_table"], strict=False):
        keys, values = (
            tokens_of(arguments[name], blocks, request.length)
            for name in ("key_cache", "value_cache")
        )
        for row in range(request.num_rows):
            seen = request.seen_by(row)
            found.append(weighted(query[len(found)], keys[seen], values[seen], arguments))
    return torch.stack(found)


def path_by_path(requests: Sequence[Request], arguments: dict[str, Any]) -> torch.Tensor:
    """Return the same, by a kernel that knows no trees."""
    starts = arguments["query_start_loc"].tolist()[: len(requests) + 1]
    caches = [arguments[name].clone() for name in ("key_cache", "value_cache")]
    size = caches[0].shape[1]
    slots = [
        (int(table[place // size]), place % size)
        for request, table in zip(requests, arguments["block_table"], strict=False)
        for place in range(request.context, request.length)
    ]
    own = [[cache[slot].clone() for slot in slots] for cache in caches]
    query = arguments["query"]
    found = torch.zeros(len(slots), *query.shape[1:], dtype=torch.float64)
    parents = [request.parents for request in requests]
    for each in plan_rounds(StepTrees(parents, starts, [len(own) for own in parents])):
        for row, place in zip(each.moved, each.places, strict=True):
            for cache, written in zip(caches, own, strict=True):
                cache[slots[place]] = written[row]
        rows = iter(each.rows)
        for index, count, unseen in zip(each.requests, each.counts, each.unseen, strict=True):
            end = requests[index].length - unseen
            table = arguments["block_table"][index]
            keys, values = (tokens_of(cache, table, end) for cache in caches)
            for left in range(count - 1, -1, -1):
                row = next(rows)
                upto = end - left
                found[row] = weighted(query[row], keys[:upto], values[:upto], arguments)
    return found


def assert_right(batch: Batch, backend: str) -> None:
    """A backend's output is that of both other ways, and it writes nothing else."""
    arguments = batch.arguments()
    output = attend(arguments, backend)
    expected = dense(batch.requests, arguments)
    other = path_by_path(batch.requests, arguments)
    torch.testing.assert_close(other, expected, atol=1e-12, rtol=0)
    count, limit = expected.shape[0], TOLERANCES[batch.dtype]
    torch.testing.assert_close(output[:count].double(), expected, atol=limit, rtol=limit)
    assert bool((output[count:] == 7).all())
