"""The exact distribution of what ``verify_sample`` puts out, without drawing a random number.

The op is a function of its uniforms. Whether draft i is accepted is a threshold in its uniform,
and the last token is a step function of the sample uniform, rising with it; so bisecting on the
op's own output finds every breakpoint, and the lengths of the intervals are the probabilities.
:func:`steps_explain` checks that the op really has this form.

A branch is one sequence of drafts; all branches of a case go through the op as one batch.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from tests.ops.oracle import Sampling, normalised, one_hot, target_distribution
from vllm_ascend_spec.ops import verify_sample

HORIZON = 3
# Halvings of [0, 1]: breakpoints are exact to 1e-12.
HALVINGS = 40
ALMOST_ONE = 1 - 2**-53

Prefix = tuple[int, ...]
Joint = dict[Prefix, float]


@dataclass(frozen=True)
class Case:
    """A target, a draft and a request.

    Attributes:
        vocab_size: at most 6.
        num_drafts: at most 3.
        sampled: whether drafts are drawn from q; else one draft, the likeliest, is certain.
        sampling: the request's parameters.
        seed: of the models.
        without_draft: position of a draft of -1, if any.
        divergence: how much q differs from p.
    """

    vocab_size: int
    num_drafts: int
    sampled: bool
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    without_draft: int | None = None
    divergence: float = 1.5

    def target_logits(self, prefix: Prefix) -> list[float]:
        """Return the target's logits after ``prefix``, a different row for each."""
        return (2 * _noise("target", self.seed, prefix, self.vocab_size)).tolist()

    def target(self, prefix: Prefix) -> list[float]:
        return target_distribution(self.target_logits(prefix), self.sampling)

    def draft(self, prefix: Prefix) -> list[float]:
        """Return the draft's distribution after ``prefix``, in float32."""
        own = _noise("draft", self.seed, prefix, self.vocab_size)
        q = (torch.tensor(self.target_logits(prefix)) + self.divergence * own).softmax(-1)
        if not self.sampled:
            return one_hot(int(q.argmax()), self.vocab_size)
        return q.tolist()


def _noise(model: str, seed: int, prefix: Prefix, size: int) -> torch.Tensor:
    # Not hash(): that of a string differs from process to process.
    number = sum((token + 1) * 11**place for place, token in enumerate(prefix))
    generator = torch.Generator().manual_seed(len(model) + 100 * seed + 1000 * number)
    return torch.randn(size, generator=generator)


@dataclass(frozen=True)
class Branches:
    """Every sequence of drafts with a chance, and the probability of each."""

    case: Case
    drafts: list[Prefix]
    weights: list[float]

    @classmethod
    def of(cls, case: Case) -> Branches:
        drafts, weights = [], []
        for tokens in itertools.product(range(case.vocab_size), repeat=case.num_drafts):
            q = [case.draft(tokens[:place])[token] for place, token in enumerate(tokens)]
            if (weight := math.prod(q)) > 0:
                drafts.append(tokens)
                weights.append(weight)
        return cls(case, drafts, normalised(weights))

    def run(self, accept: torch.Tensor, sample: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the op once per branch and column of uniforms.

        Args:
            accept: float64 [num_branches, num_columns, num_drafts].
            sample: float64 [num_branches, num_columns].

        Returns:
            Number of output tokens and the last of them, int64 [num_branches, num_columns].
        """
        case, (num_branches, num_columns) = self.case, sample.shape
        logits = [[case.target_logits(d[:i]) for i in range(len(d) + 1)] for d in self.drafts]
        probs = [[case.draft(d[:i]) for i in range(len(d))] for d in self.drafts]
        shown = torch.tensor(self.drafts, dtype=torch.int32)
        if case.without_draft is not None:
            shown[:, case.without_draft] = -1

        def repeat(values: torch.Tensor) -> torch.Tensor:
            repeated = values[:, None].expand(-1, num_columns, *values.shape[1:])
            return repeated.flatten(0, 2).contiguous()

        requests, s = num_branches * num_columns, case.sampling
        tokens, counts = verify_sample(
            repeat(torch.tensor(logits)),
            repeat(shown),
            (torch.arange(1, requests + 1) * case.num_drafts).int(),
            case.num_drafts,
            temperature=torch.full((requests,), s.temperature),
            top_k=torch.full((requests,), s.top_k, dtype=torch.int32) if s.top_k else None,
            top_p=torch.full((requests,), s.top_p) if s.top_p < 1 else None,
            min_p=torch.full((requests,), s.min_p) if s.min_p else None,
            draft_probs=repeat(torch.tensor(probs)) if case.sampled else None,
            accept_uniform=accept.flatten(),
            sample_uniform=sample.flatten(),
            backend="reference",
        )
        last = tokens.gather(1, counts.long()[:, None] - 1)[:, 0]
        return counts.long().view(sample.shape), last.long().view(sample.shape)


@dataclass(frozen=True)
class Steps:
    """Breakpoints of the op.

    Attributes:
        thresholds: [num_branches, num_drafts], draft i is accepted where its uniform is below;
            given that those before it are.
        cuts: [num_branches, num_drafts + 1, vocab_size], where the last token exceeds each token,
            by number of accepted drafts; 1 where it never does.
    """

    thresholds: torch.Tensor
    cuts: torch.Tensor


def bisect(
    is_below: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, ...]
) -> torch.Tensor:
    """Return, per element, the end of the interval from 0 in which ``is_below`` holds."""
    low, high = torch.zeros(shape, dtype=torch.float64), torch.ones(shape, dtype=torch.float64)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = is_below(middle)
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return high


def find_steps(branches: Branches) -> Steps:
    """Find the op's breakpoints by bisection on its output."""
    num_branches, length = len(branches.drafts), branches.case.num_drafts

    def accepts(uniform: torch.Tensor) -> torch.Tensor:
        # Column i tests draft i; a uniform of 0 accepts any draft that can be accepted.
        accept = torch.diag_embed(uniform)
        return branches.run(accept, torch.zeros_like(uniform))[0] >= reach

    reach = torch.arange(length) + 2
    thresholds = bisect(accepts, (num_branches, length))
    vocab = branches.case.vocab_size
    column = torch.arange(length + 1).repeat_interleave(vocab)
    token = torch.arange(vocab).repeat(length + 1)
    rejected = torch.arange(length) == column[:, None]
    accept = rejected.double() * ALMOST_ONE
    accept = accept.expand(num_branches, -1, -1)

    def is_at_most(uniform: torch.Tensor) -> torch.Tensor:
        return branches.run(accept, uniform)[1] <= token

    cuts = bisect(is_at_most, (num_branches, (length + 1) * vocab))
    return Steps(thresholds, cuts.view(num_branches, length + 1, vocab))


def steps_explain(branches: Branches, steps: Steps, columns: int = 100) -> bool:
    """Tell whether the breakpoints predict the op's output at many other uniforms."""
    generator = torch.Generator().manual_seed(0)
    num_branches, length = steps.thresholds.shape
    shape = (num_branches, columns, length)
    accept = torch.rand(shape, generator=generator, dtype=torch.float64)
    sample = torch.rand(shape[:2], generator=generator, dtype=torch.float64)
    counts, last = branches.run(accept, sample)
    below = accept < steps.thresholds[:, None]
    accepted = below.long().cumprod(-1).sum(-1)
    index = accepted[..., None].expand(-1, -1, branches.case.vocab_size)
    predicted = (steps.cuts.gather(1, index) <= sample[..., None]).sum(-1)
    return torch.equal(counts, accepted + 1) and torch.equal(last, predicted)


def output_distribution(branches: Branches, steps: Steps) -> Joint:
    """Return the joint distribution of the first tokens, the target continuing short outputs."""
    joint: Joint = defaultdict(float)
    for drafts, weight, thresholds, cuts in zip(
        branches.drafts,
        branches.weights,
        steps.thresholds.tolist(),
        steps.cuts.tolist(),
        strict=True,
    ):
        reached = weight
        for accepted in range(len(drafts) + 1):
            stop = 1.0 if accepted == len(drafts) else 1 - thresholds[accepted]
            edges = [0.0, *cuts[accepted]]
            for token, (left, right) in enumerate(itertools.pairwise(edges)):
                output = (*drafts[:accepted], token)
                _continue(branches.case, output, reached * stop * (right - left), joint)
            reached *= 1 - stop
    return joint


def target_joint(case: Case) -> Joint:
    """Return the target's own joint distribution of the first tokens."""
    joint: Joint = defaultdict(float)
    _continue(case, (), 1.0, joint)
    return joint


def _continue(case: Case, prefix: Prefix, weight: float, joint: Joint) -> None:
    if weight <= 0:
        return
    if len(prefix) >= HORIZON:
        joint[prefix[:HORIZON]] += weight
        return
    for token, p in enumerate(case.target(prefix)):
        _continue(case, (*prefix, token), weight * p, joint)


def total_variation(a: Joint, b: Joint) -> float:
    return sum(abs(a.get(key, 0.0) - b.get(key, 0.0)) for key in a.keys() | b.keys()) / 2
