"""Arguments of ``verify_tree``, what must hold for any of its results, and which of them are right.

The trees of a case have every form: chains, stars, combs, and what chance makes. Their drafts are
often what the walk looks for, at each depth, so that it goes down in many ways.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch

from tests.ops.batches import Arguments, int32
from tests.ops.cases import Numbers, parity_cases
from tests.ops.seeded import is_tie, with_seeds
from vllm_ascend_spec.ops.verify_seeded import verify_seeded
from vllm_ascend_spec.ops.verify_tree import verify_tree

Result = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
SHAPES = ("chain", "star", "comb", "any", "any", "deep")
# Of what the walk looks for next, the part that a child holds.
FOUND = 0.8


def tree_parents(shape: str, num_nodes: int, numbers: Numbers) -> list[int]:
    """Return the parents of a tree's nodes, each before its children.

    Args:
        shape: one of SHAPES; "comb": a chain with two leaves beside each of its nodes.
        num_nodes: how many there are.
        numbers: what chance decides by.
    """
    if shape == "star":
        return [-1] * num_nodes
    if shape == "comb":
        return [max(3 * (node // 3) - 3, -1) for node in range(num_nodes)]
    # How many nodes back a parent may be.
    furthest = {"chain": 1, "deep": 3}.get(shape, num_nodes)
    return [numbers.integer(max(node - furthest, -1), node - 1) for node in range(num_nodes)]


def tree_case(case: Arguments, index: int, shape: str | None = None) -> Arguments:
    """Turn a case of ``verify_sample`` into one of ``verify_tree``.

    Args:
        case: as ``parity_cases`` makes it.
        index: seed of what is added.
        shape: of all trees, one of SHAPES; None: each has one of its own.
    """
    numbers = Numbers(index)
    arguments = with_seeds(case, numbers.generator)
    parents = [
        parent
        for length in lengths_of(arguments)
        for parent in tree_parents(shape or numbers.pick(SHAPES), length, numbers)
    ]
    arguments["parents"] = int32(parents)
    return {**arguments, "draft_token_ids": found_drafts(arguments, numbers)}


def greedy_case(parents: list[int], drafts: list[int], best: list[int], vocab: int) -> Arguments:
    """Return one greedy request, whose rows have these argmaxes."""
    return {
        "logits": torch.eye(vocab)[best],
        "draft_token_ids": int32(drafts),
        "cu_num_draft_tokens": int32([len(drafts)]),
        "max_draft_len": len(drafts),
        "parents": int32(parents),
        "temperature": torch.zeros(1),
        "seeds": torch.zeros(1, dtype=torch.int64),
        "positions": torch.zeros(1, dtype=torch.int64),
    }


def path_to_the_last_node(num_nodes: int, vocab_size: int, shape: str = "chain") -> Arguments:
    """Return a greedy request in which each node holds its row's number, and the last is reached.

    Args:
        num_nodes: how many there are; in a comb one more than a multiple of three.
        vocab_size: more than that.
        shape: one of SHAPES that does not depend on chance.
    """
    parents, best = tree_parents(shape, num_nodes, Numbers(0)), [0] * (num_nodes + 1)
    node = num_nodes - 1
    while node >= 0:
        best[parents[node] + 1] = node + 1
        node = parents[node]
    return greedy_case(parents, list(range(1, num_nodes + 1)), best, vocab_size)


def tree_cases(count: int, seed: int, **fixed: Any) -> list[Arguments]:
    """Return cases of :func:`parity_cases` with trees."""
    shape = fixed.pop("shape", None)
    cases = parity_cases(count, seed, **{"max_drafts": 9, **fixed})
    return [tree_case(case, index, shape) for index, case in enumerate(cases)]


def found_drafts(arguments: Arguments, numbers: Numbers) -> torch.Tensor:
    """Return drafts in which children often hold what the walk looks for, int32 [num_drafts]."""
    samples = samples_of_rows(arguments, "reference")
    drafts, parents = arguments["draft_token_ids"].tolist(), arguments["parents"].tolist()
    start = 0
    for request, length in enumerate(lengths_of(arguments)):
        row = 0
        while below := [n for n in range(length) if parents[start + n] == row - 1]:
            if not numbers.happens(FOUND):
                break
            node = below[numbers.integer(0, len(below) - 1)]
            drafts[start + node] = samples[start + request + row]
            row = node + 1
        start += length
    return int32(drafts)


def lengths_of(arguments: Arguments) -> list[int]:
    """Return the number of nodes of each request."""
    ends = [0, *arguments["cu_num_draft_tokens"].tolist()]
    return [end - start for start, end in itertools.pairwise(ends)]


def as_lists(result: Result) -> list[tuple[list[int], list[int]]]:
    """Return each request's tokens and rows; checks dtypes, numbers and padding on the way."""
    tokens, counts, rows = result
    assert tokens.dtype == counts.dtype == rows.dtype == torch.int32
    assert tokens.shape == rows.shape
    for index, count in enumerate(counts.tolist()):
        for padded in (tokens[index], rows[index]):
            assert (padded[:count] >= 0).all()
            assert (padded[count:] == -1).all()
    return [
        (tokens[index, :count].tolist(), rows[index, :count].tolist())
        for index, count in enumerate(counts.tolist())
    ]


def walked(arguments: Arguments, samples: list[int]) -> list[tuple[list[int], list[int]]]:
    """Return what the walk yields by the samples of all rows, in plain Python."""
    drafts, parents = arguments["draft_token_ids"].tolist(), arguments["parents"].tolist()
    start, found = 0, []
    for request, length in enumerate(lengths_of(arguments)):
        tokens, rows, row = [], [], 0
        while row >= 0:
            token = samples[start + request + row]
            tokens.append(token)
            rows.append(row)
            below = [n for n in range(length) if parents[start + n] == row - 1]
            row = next((n + 1 for n in below if drafts[start + n] == token), -1)
        found.append((tokens, rows))
        start += length
    return found


def depths_of(arguments: Arguments) -> list[int]:
    """Return the depth of each row."""
    parents, start, found = arguments["parents"].tolist(), 0, []
    for length in lengths_of(arguments):
        depth = [0]
        for parent in parents[start : start + length]:
            depth.append(depth[parent + 1] + 1)
        found += depth
        start += length
    return found


def samples_of_rows(arguments: Arguments, backend: str) -> list[int]:
    """Return the sample of each row, verified by itself at its own position."""
    lengths = torch.tensor(lengths_of(arguments))
    request = torch.repeat_interleave(lengths + 1)
    depth = torch.tensor(depths_of(arguments), dtype=torch.int64)
    per_row: dict[str, Any] = {
        name: None if arguments.get(name) is None else arguments[name][request]
        for name in ("temperature", "top_k", "top_p", "min_p", "seeds")
    }
    none = (torch.zeros(0, dtype=torch.int32), torch.zeros_like(request, dtype=torch.int32), 0)
    positions = arguments["positions"][request] + depth
    tokens, _ = verify_seeded(
        arguments["logits"], *none, **per_row, positions=positions, backend=backend
    )
    return tokens[:, 0].tolist()


def spoil_other_rows(arguments: Arguments, result: Result) -> torch.Tensor:
    """Return the logits with NaN in every row that the walk did not come to."""
    logits = torch.full_like(arguments["logits"], float("nan"))
    first = 0
    for length, (_, rows) in zip(lengths_of(arguments), as_lists(result), strict=True):
        kept = first + torch.tensor(rows)
        logits[kept] = arguments["logits"][kept]
        first += length + 1
    return logits


def assert_as_the_reference(arguments: Arguments, backend: str) -> int:
    """Fail unless a backend is right; return how many requests are ties."""
    return ties_of_result(arguments, verify_tree(**arguments, backend=backend))


def ties_of_result(arguments: Arguments, result: Result) -> int:
    """Fail unless a result is the reference's up to rounding; return how many requests are ties."""
    right = as_lists(verify_tree(**arguments, backend="reference"))
    ties = 0
    for request, (got, wanted) in enumerate(zip(as_lists(result), right, strict=True)):
        if got == wanted:
            continue
        place = next(
            place
            for place, pair in enumerate(zip(*got, strict=True))
            if pair != (wanted[0][place], wanted[1][place])
        )
        row = got[1][place]
        assert row == wanted[1][place]  # what led there was the same
        assert is_tie(arguments, request, place, got[0][place], row=row)
        ties += 1
    return ties
