"""Let the verifier sample all requests with a seed, with and without drafts.

vLLM gives each such request a generator and draws from it in every step. A request's text would
then depend on what its steps verified. The verifier takes noise of the request's seed and the
token's position instead (:mod:`vllm_ascend_spec.ops.verify_seeded`). So nothing is drawn from the
generators; they only carry the seeds.

Some requests without a seed, or all, get a hidden one
(:func:`vllm_ascend_spec.config.rules.seeds_for`).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from vllm_ascend_spec.config.rules import ALL, MOST_TOP_K, WITH_TOP_K
from vllm_ascend_spec.ops.row_noise import RowNoise
from vllm_ascend_spec.ops.send import send
from vllm_ascend_spec.verification.no_draft_step import no_draft_metadata
from vllm_ascend_spec.verification.sampler import SpecVerifier
from vllm_ascend_spec.worker.hidden_seeds import HiddenSeeds

if TYPE_CHECKING:
    from vllm.config import VllmConfig

LONG = 1 << 63


class BatchSeeds(NamedTuple):
    """Seeds of the requests of a batch.

    Attributes:
        sampling: vLLM's metadata of the batch; a new object whenever the batch changes.
        seeds: int64 [num_reqs]; None if no request that samples has one.
        unseeded: bool [num_reqs], requests that sample without a seed; None if there are none.
    """

    sampling: Any
    seeds: torch.Tensor | None
    unseeded: torch.Tensor | None


class SeededSamplingMixin:
    """Mixin for ``GPUModelRunner`` or a subclass; must come before it in the bases.

    Attributes:
        noise_of_drafts: noise of the drafts that follow this step's tokens; None if no request that
            samples has a seed.
    """

    vllm_config: VllmConfig
    device: torch.device
    input_batch: Any
    requests: dict[str, Any]
    seq_lens: torch.Tensor
    sampler: Any
    drafter: Any
    rejection_sampler: Any
    noise_of_drafts: RowNoise | None = None
    _batch_seeds: BatchSeeds | None = None

    @cached_property
    def _hidden_seeds(self) -> HiddenSeeds:
        return HiddenSeeds(self.vllm_config)

    def sample_without_speculation(self) -> None:
        """Let the verifier sample requests with a seed in an engine without speculation."""
        self.rejection_sampler = SpecVerifier(self.sampler, self.vllm_config, None)

    def _sample(self, logits: Any, spec_decode_metadata: Any) -> Any:
        """Sample or verify; the signature is vLLM's."""
        self.noise_of_drafts = None
        verifier, batch = self.rejection_sampler, self.input_batch
        known = self._seeds_of_batch()
        has_seeds = known.seeds is not None
        # Without speculation vLLM enforces thinking budgets itself, in steps with seeds, too.
        if spec_decode_metadata is None and (has_seeds or verifier.speculates):
            spec_decode_metadata = no_draft_metadata(
                batch.sampling_metadata, batch.num_reqs, logits, has_seeds=has_seeds
            )
        noise = None
        if known.seeds is not None:
            # The text's length with all drafts; on an accelerator only the device knows it.
            lengths = self.seq_lens[: batch.num_reqs].long()
            ends = spec_decode_metadata.cu_num_draft_tokens
            counts = ends.diff(prepend=ends.new_zeros(1))
            noise = RowNoise(known.seeds, lengths - counts, known.unseeded)
        verifier.noise = noise
        try:
            output = super()._sample(logits, spec_decode_metadata)  # type: ignore[misc]
        finally:
            verifier.noise = None
        if noise is not None and verifier.speculates:
            self.noise_of_drafts = noise.after((output.sampled_token_ids >= 0).sum(dim=1))
        return output

    def _bookkeeping_sync(self, *args: Any, **kwargs: Any) -> Any:
        """Do what vLLM does, without rewinding generators, which a CPU's cannot do.

        vLLM draws a token for each chunk of a prompt, throws it away, and moves the generator back
        (vllm/v1/worker/gpu_model_runner.py:GPUModelRunner._bookkeeping_sync).
        """
        generators, self.input_batch.generators = self.input_batch.generators, {}
        try:
            return super()._bookkeeping_sync(*args, **kwargs)  # type: ignore[misc]
        finally:
            self.input_batch.generators = generators

    def _seeds_of_batch(self) -> BatchSeeds:
        """Return the seeds of this batch; they are copied to the device if the batch changed."""
        sampling = self.input_batch.sampling_metadata
        if self._batch_seeds is None or self._batch_seeds.sampling is not sampling:
            self._batch_seeds = self._read_seeds(sampling)
        return self._batch_seeds

    def _read_seeds(self, sampling: Any) -> BatchSeeds:
        batch, generators = self.input_batch, sampling.generators
        sample = [req_id in batch.random_reqs for req_id in batch.req_ids]
        without = [i for i, samples in enumerate(sample) if samples and i not in generators]
        seeds = {index: own.initial_seed() for index, own in generators.items()}
        for index in without:
            req_id = batch.req_ids[index]
            if self._is_given_a_seed(req_id):
                seeds[index] = self._hidden_seeds.of(req_id, self.requests[req_id])
        without = [index for index in without if index not in seeds]
        if not seeds:
            return BatchSeeds(sampling, None, None)
        by_index = torch.zeros(batch.num_reqs, dtype=torch.int64)
        for index, seed in seeds.items():
            by_index[index] = seed if seed < LONG else seed - 2 * LONG
        unseeded = None
        if without:
            unseeded = torch.zeros(batch.num_reqs, dtype=torch.bool)
            unseeded[without] = True
            unseeded = send(unseeded, self.device)
        return BatchSeeds(sampling, send(by_index, self.device), unseeded)

    def _is_given_a_seed(self, req_id: str) -> bool:
        wanted = self.rejection_sampler.seeds_for
        if wanted != WITH_TOP_K or not self.drafter.shares_noise:
            return bool(wanted == ALL)
        return 0 < self.requests[req_id].sampling_params.top_k <= MOST_TOP_K
