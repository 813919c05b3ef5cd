"""Sampling parameters of requests, spread over the rows that verify their drafts.

Without speculation vLLM's sampler sees one row per request. Here a request has K+1 rows, and row j
must be treated as if its first j drafts had been generated. So the batch is expanded: each row
becomes a "request" of its own whose output ends in those drafts, and vLLM's own
``Sampler.apply_logits_processors`` does the rest, in the same order as without speculation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from vllm.v1.sample.logits_processor import (
    AdapterLogitsProcessor,
    LogitBiasLogitsProcessor,
    MinPLogitsProcessor,
    MinTokensLogitsProcessor,
)
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.sampler import Sampler
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.verification.thinking import force_closing

# A batch-level processor that keeps state of its own may offer this method:
#   apply_to_rows(logits, row_request, row_drafts) -> logits
# logits [num_rows, vocab_size]; row_request[r] the request of row r; row_drafts[r] the drafts that
# row r takes for granted.
ROW_METHOD = "apply_to_rows"


@dataclass(frozen=True)
class Constrained:
    """Logits with everything applied that is not part of the op; filled by :func:`constrain_rows`.

    Attributes:
        logits: float32 [num_rows, vocab_size], a copy; or the target's own if nothing applies.
        temperature: what is left to divide by, float32 [num_reqs]; None if all are greedy.
        min_p: what is left to apply, float32 [num_reqs], or None.
    """

    logits: torch.Tensor
    temperature: torch.Tensor | None
    min_p: torch.Tensor | None


@dataclass(frozen=True)
class Rows:
    """The rows of one verification; filled by :func:`expand_rows`, never changed.

    Attributes:
        request: request index of each row.
        drafts: drafts before each row, one list a row.
    """

    request: list[int]
    drafts: list[list[int]]


def expand_rows(metadata: SpecDecodeMetadata, on_host: list[list[int]] | None = None) -> Rows:
    """Lay out the rows: per request one for each draft, then the bonus row.

    Args:
        metadata: the drafts.
        on_host: the same by request, as the runner knows them on the host; then the device is not
            waited for. With asynchronous scheduling it knows placeholders only.
    """
    counts = metadata.num_draft_tokens
    known = [] if on_host is None else on_host[: len(counts)]
    if [len(drafts) for drafts in known] == counts and all(t >= 0 for d in known for t in d):
        tokens = [token for drafts in known for token in drafts]
    else:
        tokens = metadata.draft_token_ids.tolist()
    request: list[int] = []
    drafts: list[list[int]] = []
    start = 0
    for index, count in enumerate(metadata.num_draft_tokens):
        for accepted in range(count + 1):
            request.append(index)
            drafts.append(tokens[start : start + accepted])
        start += count
    return Rows(request, drafts)


def min_p_of(metadata: SamplingMetadata) -> torch.Tensor | None:
    """Return each request's min-p, float32 [num_reqs], or None if no request has one."""
    for processor in metadata.logitsprocs.argmax_invariant:
        if isinstance(processor, MinPLogitsProcessor) and processor.min_p_count:
            return processor.min_p[:, 0]
    return None


def mask_min_p(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    min_p: torch.Tensor | None,  # [num_rows]
) -> torch.Tensor:
    """Forbid tokens less likely than ``min_p`` times the likeliest, at temperature 1."""
    if min_p is None:
        return logits
    probs = logits.softmax(-1)
    return logits.masked_fill(probs < probs.amax(-1, keepdim=True) * min_p[:, None], float("-inf"))


def needs_rows(metadata: SamplingMetadata) -> bool:
    """Tell whether any request has more than temperature, top-k, top-p and min-p."""
    holder = metadata.thinking_budget_state_holder
    return bool(
        not metadata.no_penalties
        or metadata.bad_words_token_ids
        or metadata.allowed_token_ids_mask is not None
        or (holder is not None and holder.has_tracked_requests())
        or any(_is_active(p) for p in metadata.logitsprocs.non_argmax_invariant)
        or _late_processors(metadata)
    )


def constrain_rows(
    sampler: Sampler,
    logits: torch.Tensor,  # [num_rows, vocab_size]
    spec: SpecDecodeMetadata,
    metadata: SamplingMetadata,
) -> Constrained:
    """Apply everything that changes logits and is not part of the op, row by row."""
    min_p, temperature = min_p_of(metadata), metadata.temperature
    if not needs_rows(metadata):
        return Constrained(logits, temperature, min_p)
    rows = expand_rows(spec, metadata.spec_token_ids)
    index = torch.tensor(rows.request, device=logits.device)
    expanded = _expand_metadata(metadata, rows, index)
    logits = sampler.apply_logits_processors(logits.float().clone(), expanded, False)
    logits = force_closing(logits, rows, metadata)
    if temperature is None or not _late_processors(metadata):
        return Constrained(logits, temperature, min_p)
    # vLLM applies these after the temperature and in their order, min-p among them.
    row_temperature = temperature[index]
    logits.div_(torch.where(row_temperature > 0, row_temperature, 1.0)[:, None])
    for processor in metadata.logitsprocs.argmax_invariant:
        if isinstance(processor, MinPLogitsProcessor):
            logits = mask_min_p(logits, None if min_p is None else min_p[index])
        else:
            logits = _row_apply(processor)(logits, rows)
    return Constrained(logits, torch.where(temperature > 0, 1.0, 0.0), None)


def require_row_support(processor: type) -> None:
    """Refuse a custom logits processor that cannot be evaluated row by row.

    Raises:
        ConfigError: naming the class and what would be valid.
    """
    if issubclass(processor, AdapterLogitsProcessor) or hasattr(processor, ROW_METHOD):
        return
    raise ConfigError(
        "logits_processors",
        processor.__qualname__,
        "its state per request cannot be rolled forward over drafts; derive it from "
        f"AdapterLogitsProcessor, or give it {ROW_METHOD}(logits, row_request, row_drafts)",
    )


def _expand_metadata(
    metadata: SamplingMetadata, rows: Rows, index: torch.Tensor
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
                SimpleNamespace(apply=partial(_row_apply(processor), rows=rows))
                for processor in metadata.logitsprocs.non_argmax_invariant
                if _is_active(processor)
            ],
            argmax_invariant=[],
        ),
        spec_token_ids=None,
        thinking_budget_state_holder=None,
    )


def _late_processors(metadata: SamplingMetadata) -> list[Any]:
    """Argmax-invariant processors other than min-p, which the verification op applies itself."""
    return [
        processor
        for processor in metadata.logitsprocs.argmax_invariant
        if not isinstance(processor, MinPLogitsProcessor) and _is_active(processor)
    ]


def _is_active(processor: Any) -> bool:
    """Tell whether any request in the batch uses ``processor``."""
    for kind, attribute in (
        (LogitBiasLogitsProcessor, "biases"),
        (MinTokensLogitsProcessor, "min_toks"),
        (AdapterLogitsProcessor, "req_info"),
    ):
        if isinstance(processor, kind):
            return bool(getattr(processor, attribute))
    return True


def _row_apply(processor: Any) -> Callable[..., torch.Tensor]:
    """Return ``apply(logits, rows)`` of ``processor``."""
    for kind, apply in (
        (LogitBiasLogitsProcessor, _apply_logit_bias),
        (MinTokensLogitsProcessor, _apply_min_tokens),
        (AdapterLogitsProcessor, _apply_per_request),
    ):
        if isinstance(processor, kind):
            return partial(apply, processor)
    return partial(_apply_row_method, processor)


def _apply_row_method(processor: Any, logits: torch.Tensor, rows: Rows) -> torch.Tensor:
    return getattr(processor, ROW_METHOD)(logits, rows.request, rows.drafts)


def _apply_logit_bias(
    processor: LogitBiasLogitsProcessor, logits: torch.Tensor, rows: Rows
) -> torch.Tensor:
    for row, request in enumerate(rows.request):
        if bias := processor.biases.get(request):
            tokens = torch.tensor(list(bias), device=logits.device)
            logits[row, tokens] += torch.tensor(list(bias.values()), device=logits.device)
    return logits


def _apply_min_tokens(
    processor: MinTokensLogitsProcessor, logits: torch.Tensor, rows: Rows
) -> torch.Tensor:
    for row, request in enumerate(rows.request):
        if request not in processor.min_toks:
            continue
        min_tokens, output, stop_tokens, structured = processor.min_toks[request]
        if len(output) + len(rows.drafts[row]) >= min_tokens:
            continue
        stops = torch.tensor(list(stop_tokens), device=logits.device, dtype=torch.long)
        before = logits[row, stops]
        logits[row, stops] = float("-inf")
        # A grammar may leave the stop token as the only way out; vLLM lets it win then.
        if structured and bool(torch.isneginf(logits[row]).all()):
            logits[row, stops] = before
    return logits


def _apply_per_request(
    processor: AdapterLogitsProcessor, logits: torch.Tensor, rows: Rows
) -> torch.Tensor:
    for row, request in enumerate(rows.request):
        if request not in processor.req_info:
            continue
        bound = processor.req_info[request]
        # AdapterLogitsProcessor binds ([prompt], output); the output comes last.
        *prompt, output = bound.args
        past = [*output, *rows.drafts[row]]
        logits[row] = bound.func(*prompt, past, logits[row], **bound.keywords)
    return logits
