"""Expand the sampling parameters of requests to the rows that verify their drafts.

Without speculation vLLM's sampler sees one row per request. Here a request has K+1 rows, and row j
must be treated as if its first j drafts had been generated. So the batch is expanded: each row
becomes a "request" of its own whose output ends in those drafts, and vLLM's own
``Sampler.apply_logits_processors`` does the rest, in the same order as without speculation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace

import torch
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.sampler import Sampler
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from vllm_ascend_spec.ops.send import send_list
from vllm_ascend_spec.verification.processors import (
    apply_processor,
    is_active,
    late_processors,
    min_p_of,
    reads_drafts,
)
from vllm_ascend_spec.verification.thinking import UNKNOWN, force_closing
from vllm_ascend_spec.verification.trees import trees_of


@dataclass(frozen=True)
class ProcessedLogits:
    """Logits with everything applied that is not part of the op; filled by :func:`process_rows`.

    Attributes:
        logits: float32 [num_rows, vocab_size], a copy; or the target's own if nothing applies.
        temperature: what the op still has to apply, float32 [num_reqs]; None if all are greedy.
        min_p: what the op still has to apply, float32 [num_reqs], or None.
    """

    logits: torch.Tensor
    temperature: torch.Tensor | None
    min_p: torch.Tensor | None


@dataclass(frozen=True)
class Rows:
    """The rows of one verification; filled by :func:`expand_rows`, never changed.

    Attributes:
        request: request index of each row.
        drafts: drafts before each row, one list per row.
        before: the row of the last of these drafts' parent; -1 for the first row of a request.
    """

    request: list[int]
    drafts: list[list[int]]
    before: list[int]


def expand_rows(
    metadata: SpecDecodeMetadata,
    on_host: list[list[int]] | None = None,
    *,
    with_tokens: bool = True,
) -> Rows:
    """List the rows: for each request one row per draft, then the bonus row.

    In a tree, the row after a draft is that of the draft, and what comes before it is its path.

    Args:
        metadata: the drafts.
        on_host: the same drafts by request, if the host knows them; reading them avoids waiting for
            the device. With asynchronous scheduling the host knows placeholders only.
        with_tokens: whether to read the drafts; if not, they are all ``UNKNOWN``.
    """
    counts = metadata.num_draft_tokens
    known = [] if on_host is None else on_host[: len(counts)]
    if not with_tokens:
        tokens = [UNKNOWN] * sum(counts)
    elif [len(drafts) for drafts in known] == counts and all(t >= 0 for d in known for t in d):
        tokens = [token for drafts in known for token in drafts]
    else:
        tokens = metadata.draft_token_ids.tolist()
    trees = trees_of(metadata)
    request: list[int] = []
    drafts: list[list[int]] = []
    before: list[int] = []
    start = 0
    for index, count in enumerate(metadata.num_draft_tokens):
        first = len(request)
        parents = range(-1, count - 1) if trees is None else trees.by_request[index]
        request.append(index)
        drafts.append([])
        before.append(-1)
        for token, parent in zip(tokens[start : start + count], parents, strict=True):
            row = first + 1 + parent
            request.append(index)
            drafts.append([*drafts[row], token])
            before.append(row)
        start += count
    return Rows(request, drafts, before)


def needs_rows(metadata: SamplingMetadata) -> bool:
    """Tell whether any request uses more than temperature, top-k, top-p and min-p."""
    holder = metadata.thinking_budget_state_holder
    return bool(
        not metadata.no_penalties
        or metadata.bad_words_token_ids
        or metadata.allowed_token_ids_mask is not None
        or (holder is not None and holder.has_tracked_requests())
        or any(is_active(p) for p in metadata.logitsprocs.non_argmax_invariant)
        or late_processors(metadata)
    )


def needs_drafts(metadata: SamplingMetadata) -> bool:
    """Tell whether any of this depends on the drafts themselves, not only on how many there are."""
    holder, processors = metadata.thinking_budget_state_holder, metadata.logitsprocs
    return bool(
        not metadata.no_penalties
        or metadata.bad_words_token_ids
        or (holder is not None and holder.has_tracked_requests())
        or any(map(reads_drafts, processors.non_argmax_invariant))
        or any(map(reads_drafts, processors.argmax_invariant))
    )


def process_rows(
    sampler: Sampler,
    logits: torch.Tensor,  # [num_rows, vocab_size]
    spec: SpecDecodeMetadata,
    metadata: SamplingMetadata,
) -> ProcessedLogits:
    """Apply everything that changes logits and is not part of the op, row by row."""
    min_p, temperature = min_p_of(metadata), metadata.temperature
    if not needs_rows(metadata):
        return ProcessedLogits(logits, temperature, min_p)
    rows = expand_rows(spec, metadata.spec_token_ids, with_tokens=needs_drafts(metadata))
    index = send_list(rows.request, torch.int64, logits.device)
    expanded = _expand_metadata(metadata, rows, index)
    logits = sampler.apply_logits_processors(logits.to(torch.float32, copy=True), expanded, False)
    logits = force_closing(logits, rows, metadata)
    if temperature is None or not late_processors(metadata):
        return ProcessedLogits(logits, temperature, min_p)
    # vLLM applies these, min-p among them, after the temperature and in their order.
    row_temperature = temperature[index]
    logits.div_(torch.where(row_temperature > 0, row_temperature, 1.0)[:, None])
    for processor in metadata.logitsprocs.argmax_invariant:
        if is_active(processor):
            logits = apply_processor(processor, logits, rows)
    return ProcessedLogits(logits, torch.where(temperature > 0, 1.0, 0.0), None)


def process_requests(
    sampler: Sampler,
    logits: torch.Tensor,  # [num_reqs, vocab_size]
    metadata: SamplingMetadata,
) -> ProcessedLogits:
    """Apply the same to one row per request, as vLLM does it without speculation.

    vLLM enforces thinking budgets there, and any processor that works on whole batches is applied.
    """
    min_p, temperature = min_p_of(metadata), metadata.temperature
    if not needs_rows(metadata):
        return ProcessedLogits(logits, temperature, min_p)
    logits = sampler.apply_logits_processors(logits.to(torch.float32, copy=True), metadata, False)
    if temperature is None or not late_processors(metadata):
        return ProcessedLogits(logits, temperature, min_p)
    logits.div_(torch.where(temperature > 0, temperature, 1.0)[:, None])
    for processor in metadata.logitsprocs.argmax_invariant:
        logits = processor.apply(logits)
    return ProcessedLogits(logits, torch.where(temperature > 0, 1.0, 0.0), None)


def _expand_metadata(
    metadata: SamplingMetadata,
    rows: Rows,
    index: torch.Tensor,  # [num_rows], the request of each row
) -> SamplingMetadata:
    def per_row(tensor: torch.Tensor | None) -> torch.Tensor | None:
        return None if tensor is None else tensor[index]

    outputs = metadata.output_token_ids
    bad_words = metadata.bad_words_token_ids
    penalties = not metadata.no_penalties
    return replace(
        metadata,
        output_token_ids=[
            [*outputs[request], *drafts]
            for request, drafts in zip(rows.request, rows.drafts, strict=True)
        ]
        if outputs
        else [],
        bad_words_token_ids={
            row: bad_words[request]
            for row, request in enumerate(rows.request)
            if request in bad_words
        },
        allowed_token_ids_mask=per_row(metadata.allowed_token_ids_mask),
        prompt_token_ids=per_row(metadata.prompt_token_ids) if penalties else None,
        frequency_penalties=per_row(metadata.frequency_penalties) if penalties else None,
        presence_penalties=per_row(metadata.presence_penalties) if penalties else None,
        repetition_penalties=per_row(metadata.repetition_penalties) if penalties else None,
        logitsprocs=SimpleNamespace(
            non_argmax_invariant=[
                SimpleNamespace(apply=partial(apply_processor, processor, rows=rows))
                for processor in metadata.logitsprocs.non_argmax_invariant
                if is_active(processor)
            ],
            argmax_invariant=[],
        ),
        spec_token_ids=None,
        thinking_budget_state_holder=None,
    )
