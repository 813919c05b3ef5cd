"""The exact distribution of what ``verify_sample`` puts out, without drawing a random number.

The op is a function of its uniforms. Each draft has a threshold in its uniform, and the last token
is a step function of the sample uniform, rising with it; so bisecting on the op's own output finds
every breakpoint, and the lengths of the intervals are the probabilities. The token rule accepts up
to the first uniform that is not below its threshold, the block rule up to the last that is.
:func:`steps_explain` checks that the op really has this form.

A branch is one sequence of drafts; all branches of a case go through the op as one batch.

Backends in float32 are off by some 1e-7 in each breakpoint, and by 2^-24 where they take uniforms
in float32; the branches' weights add up to one, so the distance is that of the few breakpoints of
one branch. Halving further than float32 resolves would find nothing new.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property

import torch

from tests.ops.oracle import Sampling, normalised, one_hot, target_distribution
from vllm_ascend_spec.ops import verify_sample

HORIZON = 3
# Halvings of [0, 1]: breakpoints are exact to 1e-9 where the op's arithmetic is.
HALVINGS = {"reference": 32}
HALVINGS_IN_FLOAT32 = 26
TOLERANCE = {"reference": 1e-6, "cpu": 1e-6}
TOLERANCE_IN_FLOAT32 = 5e-6
ALMOST_ONE = 1 - 2**-53

Prefix = tuple[int, ...]
Joint = dict[Prefix, float]


@dataclass(frozen=True)
class Case:
    """A target, a draft and a request.

    Attributes:
        vocab_size: at most 6.
        num_drafts: at most 3.
        sampled: whether drafts are sampled from q; else one draft, the argmax, is certain.
        sampling: the request's parameters.
        seed: of the models.
        without_draft: position of a draft of -1, if any.
        nan: what of q the op is shown as NaN: "row": all of it; "never drafted": the last token,
            which then has no chance; "always drafted": the last token, which then is certain.
        nan_after: in which rows: those that follow this token; None: in all.
        divergence: how much q differs from p.
        rule: how drafts are accepted.
    """

    vocab_size: int
    num_drafts: int
    sampled: bool
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    without_draft: int | None = None
    nan: str = ""
    nan_after: int | None = None
    divergence: float = 1.5
    rule: str = "token"

    @cache  # noqa: B019 - as few as there are cases
    def target_logits(self, prefix: Prefix) -> list[float]:
        """Return the target's logits after ``prefix``, a different row for each."""
        return (2 * model_noise("target", self.seed, prefix, self.vocab_size)).tolist()

    @cache  # noqa: B019
    def target(self, prefix: Prefix) -> list[float]:
        return target_distribution(self.target_logits(prefix), self.sampling)

    @cache  # noqa: B019
    def draft(self, prefix: Prefix) -> list[float]:
        """Return the draft's distribution after ``prefix``, in float32."""
        own = model_noise("draft", self.seed, prefix, self.vocab_size)
        q = (torch.tensor(self.target_logits(prefix)) + self.divergence * own).softmax(-1)
        if not self.sampled:
            return one_hot(int(q.argmax()), self.vocab_size)
        if self.nan == "never drafted" and self.has_nan(prefix):
            q[-1] = 0.0
            q /= q.sum()
        if self.nan == "always drafted" and self.has_nan(prefix):
            return one_hot(self.vocab_size - 1, self.vocab_size)
        return q.tolist()

    def has_nan(self, prefix: Prefix) -> bool:
        return bool(self.nan) and (self.nan_after is None or prefix[-1:] == (self.nan_after,))

    @cache  # noqa: B019
    def shown(self, prefix: Prefix) -> list[float]:
        """Return what the op is told of the draft's distribution after ``prefix``."""
        if not self.has_nan(prefix):
            return self.draft(prefix)
        if self.nan == "row":
            return [math.nan] * self.vocab_size
        others = model_noise("other", self.seed, prefix, self.vocab_size - 1).softmax(-1).tolist()
        return [*(others if self.nan == "always drafted" else self.draft(prefix)[:-1]), math.nan]


def model_noise(model: str, seed: int, prefix: Prefix, size: int) -> torch.Tensor:
    """Return normal numbers [size] that belong to a model and a prefix."""
    # Not hash(): that of a string differs from process to process.
    number = sum((token + 1) * 11**place for place, token in enumerate(prefix))
    generator = torch.Generator().manual_seed(len(model) + 100 * seed + 1000 * number)
    return torch.randn(size, generator=generator)


@dataclass(frozen=True)
class Branches:
    """Every sequence of drafts with a chance, the probability of each, and what verifies them."""

    case: Case
    drafts: list[Prefix]
    weights: list[float]
    backend: str

    @classmethod
    def of(cls, case: Case, backend: str = "reference") -> Branches:
        drafts, weights = [], []
        for tokens in itertools.product(range(case.vocab_size), repeat=case.num_drafts):
            q = [case.draft(tokens[:place])[token] for place, token in enumerate(tokens)]
            if (weight := math.prod(q)) > 0:
                drafts.append(tokens)
                weights.append(weight)
        return cls(case, drafts, normalised(weights), backend)

    @cached_property
    def logits(self) -> torch.Tensor:
        """The target's logits, [num_branches, num_drafts + 1, vocab_size]."""
        return torch.tensor(
            [[self.case.target_logits(d[:i]) for i in range(len(d) + 1)] for d in self.drafts]
        )

    @cached_property
    def probs(self) -> torch.Tensor:
        """What the op is told of q, [num_branches, num_drafts, vocab_size]."""
        return torch.tensor([[self.case.shown(d[:i]) for i in range(len(d))] for d in self.drafts])

    def run(self, accept: torch.Tensor, sample: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the op once per branch and column of uniforms.

        Args:
            accept: float64 [num_branches, num_columns, num_drafts].
            sample: float64 [num_branches, num_columns].

        Returns:
            Number of output tokens and the last of them, int64 [num_branches, num_columns].
        """
        case, (num_branches, num_columns) = self.case, sample.shape
        shown = torch.tensor(self.drafts, dtype=torch.int32)
        if case.without_draft is not None:
            shown[:, case.without_draft] = -1

        def repeat(values: torch.Tensor) -> torch.Tensor:
            repeated = values[:, None].expand(-1, num_columns, *values.shape[1:])
            return repeated.flatten(0, 2).contiguous()

        requests, s = num_branches * num_columns, case.sampling
        tokens, counts = verify_sample(
            repeat(self.logits),
            repeat(shown),
            (torch.arange(1, requests + 1) * case.num_drafts).int(),
            case.num_drafts,
            temperature=torch.full((requests,), s.temperature),
            top_k=torch.full((requests,), s.top_k, dtype=torch.int32) if s.top_k else None,
            top_p=torch.full((requests,), s.top_p) if s.top_p < 1 else None,
            min_p=torch.full((requests,), s.min_p) if s.min_p else None,
            draft_probs=repeat(self.probs) if case.sampled else None,
            accept_uniform=accept.flatten(),
            sample_uniform=sample.flatten(),
            rule=case.rule,
            backend=self.backend,
        )
        last = tokens.gather(1, counts.long()[:, None] - 1)[:, 0]
        return counts.long().view(sample.shape), last.long().view(sample.shape)


@dataclass(frozen=True)
class Steps:
    """Breakpoints of the op.

    Attributes:
        rule: what the thresholds mean.
        thresholds: [num_branches, num_drafts]. By the token rule, draft i is accepted where its
            uniform is below, given that those before it are; by the block rule, the drafts up to
            and with i are, given that no more are.
        cuts: [num_branches, num_drafts + 1, vocab_size], where the last token exceeds each token,
            by number of accepted drafts; 1 where it never does.
    """

    rule: str
    thresholds: torch.Tensor
    cuts: torch.Tensor

    def num_accepted(self, accept: torch.Tensor) -> torch.Tensor:
        """Return how many drafts are accepted for uniforms [num_branches, _, num_drafts]."""
        below = accept < self.thresholds[:, None]
        if self.rule == "token":
            return below.long().cumprod(-1).sum(-1)
        return (below * (torch.arange(below.shape[-1]) + 1)).amax(-1)


def chances(rule: str, thresholds: torch.Tensor) -> torch.Tensor:
    """Return the probability of each number of accepted drafts, [num_branches, num_drafts + 1]."""
    one = torch.ones_like(thresholds[:, :1])
    if rule == "token":
        reached = torch.cat([one, thresholds.cumprod(dim=1)], dim=1)
        return reached * torch.cat([1 - thresholds, one], dim=1)
    none_later = (1 - thresholds).flip(1).cumprod(dim=1).flip(1)
    return torch.cat([one, thresholds], dim=1) * torch.cat([none_later, one], dim=1)


def bisect(
    is_below: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, ...], steps: int
) -> torch.Tensor:
    """Return, per element, the end of the interval from 0 in which ``is_below`` holds."""
    low, high = torch.zeros(shape, dtype=torch.float64), torch.ones(shape, dtype=torch.float64)
    for _ in range(steps):
        middle = (low + high) / 2
        below = is_below(middle)
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return high


def find_steps(branches: Branches) -> Steps:
    """Find the op's breakpoints by bisection on its output."""
    return Steps(branches.case.rule, find_thresholds(branches), find_cuts(branches))


def find_thresholds(branches: Branches) -> torch.Tensor:
    """Find the thresholds of :class:`Steps`."""
    num_branches, length = len(branches.drafts), branches.case.num_drafts
    # A uniform of 0 accepts any draft that can be accepted, one of almost 1 rejects any that can
    # be rejected. Column i tests draft i: those before it are accepted, those after it rejected.
    later = torch.ones(length, length, dtype=torch.float64).triu(1) * ALMOST_ONE

    def accepts(uniform: torch.Tensor) -> torch.Tensor:
        accept = torch.diag_embed(uniform) + later
        return branches.run(accept, torch.zeros_like(uniform))[0] >= torch.arange(length) + 2

    return bisect(accepts, (num_branches, length), halvings(branches.backend))


def find_cuts(branches: Branches) -> torch.Tensor:
    """Find the cuts of :class:`Steps`."""
    num_branches, length = len(branches.drafts), branches.case.num_drafts
    vocab = branches.case.vocab_size
    column = torch.arange(length + 1).repeat_interleave(vocab)
    token = torch.arange(vocab).repeat(length + 1)
    rejected = torch.arange(length) >= column[:, None]
    accept = (rejected.double() * ALMOST_ONE).expand(num_branches, -1, -1)

    def is_at_most(uniform: torch.Tensor) -> torch.Tensor:
        return branches.run(accept, uniform)[1] <= token

    shape = (num_branches, (length + 1) * vocab)
    return bisect(is_at_most, shape, halvings(branches.backend)).view(num_branches, length + 1, -1)


def steps_explain(branches: Branches, steps: Steps, columns: int = 100) -> bool:
    """Tell whether the breakpoints predict the op's output at many other uniforms."""
    generator = torch.Generator().manual_seed(0)
    shape = (len(branches.drafts), columns, branches.case.num_drafts)
    accept = torch.rand(shape, generator=generator, dtype=torch.float64)
    sample = torch.rand(shape[:2], generator=generator, dtype=torch.float64)
    counts, last = branches.run(accept, sample)
    accepted = steps.num_accepted(accept)
    index = accepted[..., None].expand(-1, -1, branches.case.vocab_size)
    predicted = (steps.cuts.gather(1, index) <= sample[..., None]).sum(-1)
    return torch.equal(counts, accepted + 1) and torch.equal(last, predicted)


def output_distribution(branches: Branches, steps: Steps) -> Joint:
    """Return the joint distribution of the first tokens, the target continuing short outputs."""
    joint: Joint = defaultdict(float)
    for drafts, weight, reached, cuts in zip(
        branches.drafts,
        branches.weights,
        chances(steps.rule, steps.thresholds).tolist(),
        steps.cuts.tolist(),
        strict=True,
    ):
        for accepted, chance in enumerate(reached):
            edges = [0.0, *cuts[accepted]]
            for token, (left, right) in enumerate(itertools.pairwise(edges)):
                output = (*drafts[:accepted], token)
                _continue(branches.case, output, weight * chance * (right - left), joint)
    return joint


def mean_accepted(case: Case, backend: str = "reference") -> float:
    """Return how many drafts are accepted on average."""
    branches = Branches.of(case, backend)
    numbers = torch.arange(case.num_drafts + 1).double()
    reached = chances(case.rule, find_thresholds(branches))
    return float(torch.tensor(branches.weights).double() @ reached @ numbers)


def distance_to_target(branches: Branches, steps: Steps) -> float:
    """Return the total variation between the output's and the target's distribution."""
    output = output_distribution(branches, steps)
    assert math.isclose(sum(output.values()), 1.0, abs_tol=1e-9)
    return total_variation(output, target_joint(branches.case))


def halvings(backend: str) -> int:
    return HALVINGS.get(backend, HALVINGS_IN_FLOAT32)


def tolerance(backend: str) -> float:
    """Return the distance that the backend's arithmetic may leave."""
    return TOLERANCE.get(backend, TOLERANCE_IN_FLOAT32)


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
