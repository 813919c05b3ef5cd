"""Apply logits processors to the rows that verify drafts.

vLLM's processors are written for one row per request. :data:`HANDLERS` says for each kind how to
apply it to rows instead, and when it can be skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from vllm.v1.sample.logits_processor import (
    AdapterLogitsProcessor,
    LogitBiasLogitsProcessor,
    MinPLogitsProcessor,
    MinTokensLogitsProcessor,
)
from vllm.v1.sample.metadata import SamplingMetadata

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.ops.send import send, send_list

if TYPE_CHECKING:
    from vllm_ascend_spec.verification.rows import Rows

# A batch-level processor that keeps state of its own may offer this method:
#   apply_to_rows(logits, row_request, row_drafts) -> logits
# logits [num_rows, vocab_size]; row_request[r] the request of row r; row_drafts[r] the drafts that
# come before row r.
ROW_METHOD = "apply_to_rows"


@dataclass(frozen=True)
class Handler:
    """How one kind of processor is evaluated row by row.

    Attributes:
        kind: the processor's class, subclasses included.
        is_active: tells whether any request of the batch uses the processor.
        apply: ``apply(processor, logits, rows)`` returns the logits, [num_rows, vocab_size].
        is_in_op: whether the verification op applies it, unless another processor has to follow.
        reads_drafts: whether it needs to know the drafts, not only how many there are.
    """

    kind: type
    is_active: Callable[[Any], bool]
    apply: Callable[[Any, torch.Tensor, Rows], torch.Tensor]
    is_in_op: bool = False
    reads_drafts: bool = True


def is_active(processor: Any) -> bool:
    """Tell whether any request in the batch uses ``processor``."""
    return _handler_of(processor).is_active(processor)


def apply_processor(
    processor: Any,
    logits: torch.Tensor,  # [num_rows, vocab_size]
    rows: Rows,
) -> torch.Tensor:
    """Apply ``processor``, in place or not; return the logits, [num_rows, vocab_size]."""
    return _handler_of(processor).apply(processor, logits, rows)


def reads_drafts(processor: Any) -> bool:
    """Tell whether ``processor``, if in use, needs to know the drafts."""
    return is_active(processor) and _handler_of(processor).reads_drafts


def late_processors(metadata: SamplingMetadata) -> list[Any]:
    """Return the argmax-invariant processors in use that the verification op does not apply."""
    return [
        processor
        for processor in metadata.logitsprocs.argmax_invariant
        if is_active(processor) and not _handler_of(processor).is_in_op
    ]


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


def min_p_of(metadata: SamplingMetadata) -> torch.Tensor | None:
    """Return each request's min-p, float32 [num_reqs], or None if no request has one."""
    for processor in metadata.logitsprocs.argmax_invariant:
        if isinstance(processor, MinPLogitsProcessor) and is_active(processor):
            return processor.min_p[:, 0]
    return None


def mask_min_p(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    min_p: torch.Tensor | None,  # [num_rows]
) -> torch.Tensor:
    """Mask tokens less likely than ``min_p`` times the most likely one, at temperature 1."""
    if min_p is None:
        return logits
    probs = logits.softmax(-1)
    return logits.masked_fill(probs < probs.amax(-1, keepdim=True) * min_p[:, None], float("-inf"))


def _apply_logit_bias(
    processor: LogitBiasLogitsProcessor,
    logits: torch.Tensor,  # [num_rows, vocab_size]
    rows: Rows,
) -> torch.Tensor:
    biases = [
        (row, token, bias)
        for row, request in enumerate(rows.request)
        for token, bias in processor.biases.get(request, {}).items()
    ]
    if biases:
        index = send(torch.tensor([cell[:2] for cell in biases]).T, logits.device)
        added = send_list([bias for *_, bias in biases], logits.dtype, logits.device)
        logits[tuple(index)] += added
    return logits


def _apply_min_tokens(
    processor: MinTokensLogitsProcessor,
    logits: torch.Tensor,  # [num_rows, vocab_size]
    rows: Rows,
) -> torch.Tensor:
    stops: list[tuple[int, int]] = []
    with_grammar: list[int] = []
    for row, request in enumerate(rows.request):
        if request not in processor.min_toks:
            continue
        # The last entry says whether there is a grammar; vLLM 0.23 neither has nor uses it.
        min_tokens, output, stop_tokens, *structured = processor.min_toks[request]
        if len(output) + len(rows.drafts[row]) < min_tokens:
            stops += [(row, token) for token in stop_tokens]
            with_grammar += [row] * any(structured)
    if not stops:
        return logits
    index = tuple(send(torch.tensor(stops).T, logits.device))
    before = logits[index]
    logits[index] = float("-inf")
    if with_grammar:
        # Where the grammar allows nothing but stop tokens, vLLM allows them before min_tokens too.
        own = send_list(with_grammar, torch.int64, logits.device)
        is_alone = torch.zeros(logits.shape[0], dtype=torch.bool, device=logits.device)
        is_alone[own] = torch.isneginf(logits[own]).all(dim=1)
        logits[index] = before.masked_fill(~is_alone[index[0]], float("-inf"))
    return logits


def _apply_min_p(
    processor: MinPLogitsProcessor,
    logits: torch.Tensor,  # [num_rows, vocab_size]
    rows: Rows,
) -> torch.Tensor:
    request = send_list(rows.request, torch.int64, logits.device)
    return mask_min_p(logits, processor.min_p[request, 0])


def _apply_per_request(
    processor: AdapterLogitsProcessor,
    logits: torch.Tensor,  # [num_rows, vocab_size]
    rows: Rows,
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


def _apply_row_method(
    processor: Any,
    logits: torch.Tensor,  # [num_rows, vocab_size]
    rows: Rows,
) -> torch.Tensor:
    return getattr(processor, ROW_METHOD)(logits, rows.request, rows.drafts)


# The first handler that fits is used; the last one fits all processors.
HANDLERS = (
    Handler(
        LogitBiasLogitsProcessor, lambda p: bool(p.biases), _apply_logit_bias, reads_drafts=False
    ),
    Handler(
        MinTokensLogitsProcessor, lambda p: bool(p.min_toks), _apply_min_tokens, reads_drafts=False
    ),
    Handler(
        MinPLogitsProcessor,
        lambda p: bool(p.min_p_count),
        _apply_min_p,
        is_in_op=True,
        reads_drafts=False,
    ),
    Handler(AdapterLogitsProcessor, lambda p: bool(p.req_info), _apply_per_request),
    Handler(object, lambda p: True, _apply_row_method),
)


def _handler_of(processor: Any) -> Handler:
    return next(handler for handler in HANDLERS if isinstance(processor, handler.kind))
