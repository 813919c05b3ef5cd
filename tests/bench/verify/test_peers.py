"""The peers of ``benchmarks verify`` verify; figures of something broken would be worth nothing."""

from __future__ import annotations

import pytest
import torch

from tests.benchmarks.verify import eager, peers, stock
from tests.benchmarks.verify.cases import (
    KINDS,
    NUM_DRAFTS,
    VerifyBatch,
    VerifyCase,
    make_batch,
)
from vllm_ascend_spec.errors import BackendUnavailableError, ConfigError
from vllm_ascend_spec.ops.verify_seeded import verify_seeded

CPU = torch.device("cpu")
VOCAB = 96
WITH_PEERS = [name for name, kind in KINDS.items() if kind.rule != "block"]


@pytest.fixture(autouse=True)
def patched() -> None:
    stock.prepare(CPU)


@pytest.mark.parametrize("acceptance", ["all", "mixed"])
@pytest.mark.parametrize("kind", WITH_PEERS)
def test_peers_put_out_what_a_verification_puts_out(kind: str, acceptance: str) -> None:
    batch = make_batch(VerifyCase(kind, VOCAB, 6, acceptance), torch.float32, CPU)
    calls = peers.make_calls(VerifyCase(kind, VOCAB, 6, acceptance), batch, ("reference",))
    means = {
        name: peers.check_tokens(name, calls[name](), batch)
        for name in ("reference", "torch", "vllm")
    }
    assert all(1 <= mean <= batch.num_drafts + 1 for mean in means.values())
    # vLLM draws its own uniforms; the others accept by those of the batch, or by its seeds.
    ours = "reference" if KINDS[kind].rule == "token" else "reference, token rule"
    assert means["torch"] == peers.check_tokens(ours, calls[ours](), batch)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_greedy_peers_agree(dtype: torch.dtype) -> None:
    case = VerifyCase("greedy", VOCAB, 6, "mixed")
    batch = make_batch(case, dtype, CPU)
    calls = peers.make_calls(case, batch, ("reference",))
    expected = calls["reference"]()[0]
    assert torch.equal(calls["torch"]().int(), expected)
    assert torch.equal(calls["vllm"](), expected)
    assert torch.equal(calls["argmax"]().view(6, -1)[:, 0].int(), expected[:, 0])


def test_no_peer_changes_the_logits() -> None:
    """All are given the same tensor."""
    for kind in WITH_PEERS:
        case = VerifyCase(kind, VOCAB, 3)
        batch = make_batch(case, torch.float32, CPU)
        before = batch.logits.clone()
        for call in peers.make_calls(case, batch, ("reference",)).values():
            call()
        assert torch.equal(batch.logits, before)


def repeated(num_reqs: int, vocab: int, sampled_drafts: bool, top_p: float | None) -> VerifyBatch:
    """Return one request many times over, with its own uniforms and drafts each time."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(NUM_DRAFTS + 1, vocab, generator=generator)
    q = torch.randn(NUM_DRAFTS, vocab, generator=generator).softmax(-1)
    one_hot = rows[:NUM_DRAFTS].argmax(-1)
    drafts = torch.multinomial(q, num_reqs, replacement=True, generator=generator).T
    return VerifyBatch(
        logits=rows.repeat(num_reqs, 1),
        draft_token_ids=(drafts if sampled_drafts else one_hot.expand_as(drafts)).flatten().int(),
        cu_num_draft_tokens=torch.arange(1, num_reqs + 1, dtype=torch.int32) * NUM_DRAFTS,
        temperature=torch.full((num_reqs,), 0.8),
        top_k=None,
        top_p=None if top_p is None else torch.full((num_reqs,), top_p),
        draft_probs=q.repeat(num_reqs, 1) if sampled_drafts else None,
        accept_uniform=torch.rand(num_reqs * NUM_DRAFTS, generator=generator).double(),
        sample_uniform=torch.rand(num_reqs, generator=generator).double(),
        seeds=torch.arange(num_reqs),
        positions=torch.zeros(num_reqs, dtype=torch.int64),
    )


@pytest.mark.parametrize("top_p", [None, 0.7])
@pytest.mark.parametrize("sampled_drafts", [False, True])
def test_the_pytorch_peer_samples_the_target(sampled_drafts: bool, top_p: float | None) -> None:
    torch.manual_seed(2)
    num_reqs, vocab = 40_000, 7
    batch = repeated(num_reqs, vocab, sampled_drafts, top_p)
    tokens = eager.verify(batch)
    target = (batch.logits[0] / 0.8).softmax(-1)
    if top_p is not None:
        ordered, index = target.sort(descending=True)
        target[index[(ordered.cumsum(0) - ordered) >= top_p]] = 0
        target /= target.sum()
    seen = tokens[:, 0].bincount(minlength=vocab) / num_reqs
    # Six standard deviations of a share of this many draws.
    assert (seen - target).abs().max() < 6 * 0.5 / num_reqs**0.5


def test_block_cases_are_compared_with_the_token_rule() -> None:
    case = VerifyCase("block-sampled-drafts", VOCAB, 40, "mixed")
    batch = make_batch(case, torch.float32, CPU)
    calls = peers.make_calls(case, batch, ("reference",))
    assert set(calls) == {"reference", "reference, token rule", *peers.READS}
    by_token_rule = peers.our_call("sampled-drafts", batch, "reference")()
    assert torch.equal(calls["reference, token rule"]()[0], by_token_rule[0])
    assert not torch.equal(calls["reference"]()[0], by_token_rule[0])


def test_seeded_cases_are_compared_with_the_token_rule_and_with_others() -> None:
    for kind in ("seeded-top-p", "seeded-no-drafts"):
        case = VerifyCase(kind, VOCAB, 5)
        batch = make_batch(case, torch.float32, CPU)
        calls = peers.make_calls(case, batch, ("reference",))
        names = {"reference", "reference, token rule", "torch", "vllm"}
        assert set(calls) == {*names, *peers.READS}
        seeded = verify_seeded(
            batch.logits, batch.draft_token_ids, batch.cu_num_draft_tokens, batch.num_drafts,
            temperature=batch.temperature, top_p=batch.top_p, seeds=batch.seeds,
            positions=batch.positions,
        )  # fmt: skip
        assert torch.equal(calls["reference"]()[0], seeded[0])
        # All drafts are accepted, so the token rule reads as many rows.
        for name in ("reference", "reference, token rule"):
            assert calls[name]()[1].tolist() == [batch.num_drafts + 1] * 5


@pytest.mark.parametrize(("dtype", "columns"), [(torch.float32, 8), (torch.bfloat16, 7)])
def test_reading_passes_read_everything(dtype: torch.dtype, columns: int) -> None:
    logits = torch.ones(5, columns, dtype=dtype)
    calls = peers.read_calls(logits)
    assert float(calls["read: sum"]()) == logits.numel()
    before = float(calls["read: max"]())
    logits[-1, -1] = 9.0
    assert float(calls["read: max"]()) > before


@pytest.mark.parametrize(
    "tokens",
    [
        [[3, 4, 5, 6, 7], [-1, -1, -1, -1, -1]],  # nobody gets nothing
        [[3, 4, 5, 6, 7], [3, -1, 5, -1, -1]],  # a gap
        [[3, 4, 5, 6, 7], [3, 4, VOCAB, -1, -1]],  # not in the vocabulary
        [[3, 4, 5, 6, 7], [9, 4, -1, -1, -1]],  # goes on after a token that is no draft
        [[3, 4, 5, 6], [3, 4, 5, 6]],  # too narrow
        [[3, 4, 5, 6, 7], [3, 4, -2, -1, -1]],  # wrong padding
    ],
)
def test_tokens_that_no_verification_gives_are_refused(tokens: list[list[int]]) -> None:
    batch = make_batch(VerifyCase("plain", VOCAB, 2), torch.float32, CPU)
    batch = batch._replace(draft_token_ids=torch.tensor([3, 4, 5, 6] * 2, dtype=torch.int32))
    right = torch.tensor([[3, 4, 5, 6, 7], [3, 4, 9, -1, -1]])
    assert peers.check_tokens("peer", right, batch) == 4.0
    with pytest.raises(RuntimeError, match="peer gave tokens"):
        peers.check_tokens("peer", torch.tensor(tokens), batch)


def test_backends_of_the_device() -> None:
    states = peers.find_backends((), CPU)
    assert list(states) == ["cpu", "reference"]
    assert states["reference"] == "ready"
    assert peers.find_backends(("reference",), CPU) == {"reference": "ready"}


@pytest.mark.parametrize("name", ["triton", "fast"])
def test_a_backend_that_is_not_for_the_device_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"--backend='{name}': .* ready on cpu: .*reference"):
        peers.find_backends((name,), CPU)


def test_a_backend_that_cannot_run_says_why(monkeypatch) -> None:
    def backend(name: str, device: torch.device) -> None:
        if name == "cpu":
            raise BackendUnavailableError("no compiler was found")

    monkeypatch.setattr(peers, "GREEDY", type("Op", (), {"backend": staticmethod(backend)}))
    assert peers.find_backends((), CPU) == {
        "cpu": "no compiler was found",
        "reference": "ready",
    }
    with pytest.raises(ConfigError, match="no compiler was found"):
        peers.find_backends(("cpu",), CPU)


def test_the_record_says_what_was_done_to_the_stock_sampler() -> None:
    assert "cpu_rejection_kernels" in stock.prepare(CPU)
    assert "as released." in stock.prepare(torch.device("cuda"))
