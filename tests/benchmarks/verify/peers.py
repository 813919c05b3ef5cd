"""The calls that ``benchmarks verify`` times: our backends, their peers, passes that only read."""

from __future__ import annotations

from typing import Any

import torch

from tests.benchmarks.verify import eager, stock
from tests.benchmarks.verify.cases import KINDS, VerifyBatch, VerifyCase
from tests.benchmarks.verify.timing import Call
from vllm_ascend_spec.errors import BackendUnavailableError, ConfigError
from vllm_ascend_spec.ops import verify_greedy, verify_sample
from vllm_ascend_spec.ops.registry import ANY_DEVICE, PREFERENCE
from vllm_ascend_spec.ops.verify_greedy import OP as GREEDY
from vllm_ascend_spec.ops.verify_sample import OP as SAMPLE
from vllm_ascend_spec.ops.verify_seeded import OP as SEEDED
from vllm_ascend_spec.ops.verify_seeded import verify_seeded

TORCH, VLLM, ARGMAX = "torch", "vllm", "argmax"
READS = ("read: sum", "read: max")
# Suffix of a backend's name: it verifies the batch of another rule by the token rule.
BY_TOKEN_RULE = ", token rule"


def find_backends(wanted: tuple[str, ...], device: torch.device) -> dict[str, str]:
    """Return the state of each backend on ``device``, best first: ``ready`` or why it is not.

    Raises:
        ConfigError: a backend in ``wanted`` does not exist or is not ready.
    """
    states = _states(device)
    for name in wanted:
        if states.get(name) != "ready":
            ready = ", ".join(name for name, state in states.items() if state == "ready")
            problem = states.get(name, f"there is none of this name on {device.type}")
            raise ConfigError("--backend", name, f"{problem}; ready on {device.type}: {ready}")
    return {name: states[name] for name in wanted} if wanted else states


def _states(device: torch.device) -> dict[str, str]:
    states: dict[str, str] = {}
    for name in PREFERENCE.get(device.type, ANY_DEVICE):
        try:
            for op in (GREEDY, SAMPLE, SEEDED):
                op.backend(name, device)
        except BackendUnavailableError as error:
            states[name] = str(error)
        else:
            states[name] = "ready"
    return states


def our_call(kind: str, batch: VerifyBatch, backend: str, rule: str | None = None) -> Call:
    """Return a call of the op on ``batch`` as the verifier makes it, with its argument checks."""
    drafts = (batch.draft_token_ids, batch.cu_num_draft_tokens, batch.num_drafts)
    rule = rule or KINDS[kind].rule
    if KINDS[kind].temperature == 0:
        return lambda: verify_greedy(batch.logits, *drafts, backend=backend)
    if rule == "seeded":
        return lambda: verify_seeded(
            batch.logits,
            *drafts,
            temperature=batch.temperature,
            top_k=batch.top_k,
            top_p=batch.top_p,
            seeds=batch.seeds,
            positions=batch.positions,
            backend=backend,
        )
    return lambda: verify_sample(
        batch.logits,
        *drafts,
        temperature=batch.temperature,
        top_k=batch.top_k,
        top_p=batch.top_p,
        draft_probs=batch.draft_probs,
        accept_uniform=batch.accept_uniform,
        sample_uniform=batch.sample_uniform,
        rule=rule,
        backend=backend,
    )


def make_calls(case: VerifyCase, batch: VerifyBatch, backends: tuple[str, ...]) -> dict[str, Call]:
    """Return everything that is timed for ``case``, by name."""
    kind = KINDS[case.kind]
    calls: dict[str, Call] = {name: our_call(case.kind, batch, name) for name in backends}
    if kind.rule != "token":
        for name in backends:
            calls[name + BY_TOKEN_RULE] = our_call(case.kind, batch, name, "token")
    if kind.rule != "block":
        calls[TORCH] = lambda: eager.verify(batch)
        calls[VLLM] = stock.make_call(batch)
    if kind.temperature == 0:
        calls[ARGMAX] = lambda: batch.logits.argmax(dim=-1)
    return calls | read_calls(batch.logits)


def read_calls(logits: torch.Tensor) -> dict[str, Call]:
    """Return calls that read all bytes of ``logits`` and compute next to nothing."""
    flat = logits.view(-1)
    words = flat.view(torch.int32) if flat.nbytes % 4 == 0 else flat
    return dict(zip(READS, (flat.sum, words.amax), strict=True))


def check_tokens(name: str, result: Any, batch: VerifyBatch) -> float:
    """Check that a result can come from a verification; return the mean tokens per request.

    Raises:
        RuntimeError: it cannot; timings of a broken verifier would mean nothing.
    """
    tokens = (result[0] if isinstance(result, tuple) else result).cpu()
    num_reqs, vocab, num_drafts = len(batch.temperature), batch.logits.shape[1], batch.num_drafts
    drafts = batch.draft_token_ids.cpu().view(num_reqs, num_drafts)
    counts = (tokens >= 0).sum(dim=1)
    within = torch.arange(num_drafts + 1) < counts[:, None]
    accepted = within[:, 1:]
    valid = (
        tokens.shape == (num_reqs, num_drafts + 1)
        and bool((counts > 0).all())
        and bool((tokens[within] < vocab).all() and (tokens[~within] == -1).all())
        and bool((tokens[:, :-1][accepted] == drafts[accepted]).all())
    )
    if not valid:
        raise RuntimeError(f"{name} gave tokens that no verification gives: {tokens.tolist()}")
    return round(float(counts.double().mean()), 3)
