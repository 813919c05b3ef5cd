"""Every metric of a step, in one table: its name, help and labels, and its samples of a step.

The registered metrics, the figures of the page (``page/data.py``) and the tests of the dashboard
are made from this table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_ascend_spec.graphs.distribution_metrics import REQUESTS
from vllm_ascend_spec.step_report import StepReport

K_STEPS = "vllm:spec_decode_draft_length_steps"
GRAPH_STEPS = "vllm:spec_decode_graph_steps"
DRAFT_GRAPH_STEPS = "vllm:spec_decode_draft_graph_steps"
# Where the accepted path of a tree went: along the principal chain, or to a node beside it. With
# asynchronous scheduling it is not known.
ON_CHAIN, BESIDE, UNKNOWN = "chain", "beside", "unknown"
# Each common size of a decode batch has its own bucket.
BUCKETS = (*range(1, 17), *range(20, 65, 4), *range(80, 257, 16), 384, 512, 768, 1024)
# How a sample changes a metric.
CHANGES = {"counter": "inc", "gauge": "set", "histogram": "observe"}


@dataclass(frozen=True)
class CountedStep:
    """A step as it reaches the metrics.

    Attributes:
        report: what worker and scheduler report of it.
        num_tokens: number of tokens in its batch, without padding.
        positions: verified and accepted drafts by position; empty without drafts.
    """

    report: StepReport
    num_tokens: int = 0
    positions: Sequence[tuple[int, int]] = ()


# Values of a metric's labels but for the engine, and by how much it changes.
Samples = Iterable[tuple[tuple[str, ...], float]]


@dataclass(frozen=True)
class Metric:
    """A metric of steps.

    Attributes:
        name: without the ``_total`` that Prometheus shows behind a counter's name.
        kind: one of :data:`CHANGES`.
        about: its help text.
        labels: names of its labels, but for ``engine``, which comes first.
        samples: returns how a step changes it.
        figure: its name on the page; empty if the page does not show it.
    """

    name: str
    kind: str
    about: str
    labels: tuple[str, ...]
    samples: Callable[[CountedStep], Samples]
    figure: str = ""

    @property
    def sample_name(self) -> str:
        """Name of its samples in Prometheus."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


def _k_steps(step: CountedStep) -> Samples:
    if step.report.k is not None:
        yield (str(step.report.k), step.report.k_reason), 1


def _graph_steps(step: CountedStep) -> Samples:
    if step.report.graph:
        yield (step.report.graph.lower(), step.report.no_graph_reason), 1


def _draft_graph_steps(step: CountedStep) -> Samples:
    if step.report.draft_graph:
        yield (step.report.draft_graph.lower(),), 1


def _batch_requests(step: CountedStep) -> Samples:
    k = step.report.batch_k
    if k is not None:
        yield (str(k),), step.num_tokens / (k + 1)


def _verified_requests(step: CountedStep) -> Samples:
    for k, (requests, _) in step.report.verified.items():
        yield (step.report.method, str(k)), requests


def _verified_tokens(step: CountedStep) -> Samples:
    for k, (requests, accepted) in step.report.verified.items():
        yield (step.report.method, str(k)), requests + accepted


def _tree_paths(step: CountedStep) -> Samples:
    if (trees := step.report.trees) is None:
        return
    on_chain = trees.known - trees.left
    unknown = trees.verified - trees.known
    for path, count in ((ON_CHAIN, on_chain), (BESIDE, trees.left), (UNKNOWN, unknown)):
        if count:
            yield (step.report.method, path), count


def _tree_drafts(step: CountedStep) -> Samples:
    if step.report.trees is not None:
        yield (step.report.method,), step.report.trees.drafts


def _tree_depth(step: CountedStep) -> Samples:
    if step.report.tree_depth:
        yield (step.report.method,), step.report.tree_depth


def _tree_accepted(step: CountedStep) -> Samples:
    if step.report.trees is not None:
        yield (step.report.method,), step.report.trees.accepted


def _position(which: int) -> Callable[[CountedStep], Samples]:
    """Return the samples by position: of verified drafts (0) or of accepted ones (1)."""

    def samples(step: CountedStep) -> Samples:
        for place, counts in enumerate(step.positions):
            if counts[0]:
                yield (step.report.method, str(place)), counts[which]

    return samples


def _value(field: str, scale: float = 1.0) -> Callable[[CountedStep], Samples]:
    """Return the sample of a field of the report; it is there from the first step on, as 0."""
    return lambda step: [((), scale * getattr(step.report, field))]


def _flag(field: str) -> Callable[[CountedStep], Samples]:
    """Return the sample of a field that a scheduler of ours fills in."""
    return lambda step: [] if step.report.k is None else [((), float(getattr(step.report, field)))]


_BY_K, _BY_POSITION = ("method", "k"), ("method", "position")
METRICS = (
    Metric(
        K_STEPS,
        "counter",
        "Steps by K, the number of drafts per request, and the reason for that K.",
        ("k", "reason"),
        _k_steps,
        "length_steps",
    ),
    Metric(
        GRAPH_STEPS,
        "counter",
        "Steps by the graph that the target replayed, and the reason if none.",
        ("graph", "reason"),
        _graph_steps,
        "graph_steps",
    ),
    Metric(
        DRAFT_GRAPH_STEPS,
        "counter",
        "Steps with a draft model, by the graph of its first draft step.",
        ("graph",),
        _draft_graph_steps,
    ),
    Metric(
        REQUESTS,
        "histogram",
        "Number of requests in a decode batch, by the k drafts that each has.",
        ("k",),
        _batch_requests,
    ),
    Metric(
        "vllm:spec_decode_verified_requests",
        "counter",
        "Verifications of k drafts: one per request and step.",
        _BY_K,
        _verified_requests,
        "verified_requests",
    ),
    Metric(
        "vllm:spec_decode_verified_tokens",
        "counter",
        "Tokens from these verifications: accepted drafts and the token after them.",
        _BY_K,
        _verified_tokens,
        "verified_tokens",
    ),
    Metric(
        "vllm:spec_decode_position_drafts",
        "counter",
        "Verified drafts by position; 0 is the first.",
        _BY_POSITION,
        _position(0),
        "position_drafts",
    ),
    Metric(
        "vllm:spec_decode_position_accepted",
        "counter",
        "Accepted drafts by position; 0 is the first.",
        _BY_POSITION,
        _position(1),
        "position_accepted",
    ),
    Metric(
        "vllm:spec_decode_tree_paths",
        "counter",
        "Verified trees of drafts, by where the accepted path went: chain, beside or unknown.",
        ("method", "path"),
        _tree_paths,
        "tree_paths",
    ),
    Metric(
        "vllm:spec_decode_tree_drafts",
        "counter",
        "Drafts of these trees: their nodes.",
        ("method",),
        _tree_drafts,
        "tree_drafts",
    ),
    Metric(
        "vllm:spec_decode_tree_depth",
        "counter",
        "Drafts that follow each other at most in these trees, added up.",
        ("method",),
        _tree_depth,
        "tree_depth",
    ),
    Metric(
        "vllm:spec_decode_tree_accepted",
        "counter",
        "Accepted drafts of these trees: the lengths of the accepted paths.",
        ("method",),
        _tree_accepted,
        "tree_accepted",
    ),
    Metric(
        "vllm:spec_decode_step_seconds",
        "counter",
        "Seconds of the host in steps of the model runner, without compilation.",
        (),
        _value("step_us", 1e-6),
        "step_seconds",
    ),
    Metric(
        "vllm:spec_decode_verification_seconds",
        "counter",
        "The part of the step seconds in grammar masks, sampling and verification.",
        (),
        _value("verification_us", 1e-6),
        "verification_seconds",
    ),
    Metric(
        "vllm:spec_decode_drafting_seconds",
        "counter",
        "The part of the step seconds in drafting.",
        (),
        _value("drafting_us", 1e-6),
        "drafting_seconds",
    ),
    Metric(
        "vllm:spec_decode_acceptance_low",
        "gauge",
        "1 from when fewer than 5% of first drafts are accepted until 15% are.",
        (),
        _flag("is_low"),
        "low",
    ),
    Metric(
        "vllm:spec_decode_acceptance_alarms",
        "counter",
        "How often spec_decode_acceptance_low became 1.",
        (),
        _flag("alarms"),
        "alarms",
    ),
    Metric(
        "vllm:spec_decode_drafting_paused",
        "gauge",
        "1 while nothing is drafted because drafting does not pay.",
        (),
        _flag("is_paused"),
        "paused",
    ),
    Metric(
        "vllm:spec_decode_drafting_pauses",
        "counter",
        "How often spec_decode_drafting_paused became 1.",
        (),
        _flag("pauses"),
        "pauses",
    ),
)


class StepMetrics:
    """The metrics of the table, registered so that vLLM does not unregister them; see ``rule.py``.

    Each has samples only from the first step that changes it.
    """

    def __init__(self) -> None:
        from prometheus_client import REGISTRY

        self._by_name = {metric.name: _make(metric) for metric in METRICS}
        REGISTRY.register(self)
        # Cached: it runs in every step, and a lookup by labels takes longer than counting.
        self._labelled = functools.cache(self._look_up)

    def collect(self) -> Iterable[Any]:
        """Return the metrics that have samples."""
        found = (family for metric in self._by_name.values() for family in metric.collect())
        return [family for family in found if family.samples]

    def count(self, step: CountedStep, engine: int) -> None:
        """Count a step of an engine, by the engine's number."""
        for metric in METRICS:
            for labels, value in metric.samples(step):
                getattr(self._labelled(metric.name, str(engine), *labels), CHANGES[metric.kind])(
                    value
                )

    def _look_up(self, name: str, *labels: str) -> Any:
        return self._by_name[name].labels(*labels)


def _make(metric: Metric) -> Any:
    from prometheus_client import Counter, Gauge, Histogram

    labels = ["engine", *metric.labels]
    if metric.kind == "counter":
        return Counter(metric.name, metric.about, labels, registry=None)
    if metric.kind == "histogram":
        return Histogram(metric.name, metric.about, labels, registry=None, buckets=BUCKETS)
    # As vLLM's gauges: one line for each engine, however many API servers there are.
    return Gauge(metric.name, metric.about, labels, registry=None, multiprocess_mode="mostrecent")


@functools.cache
def step_metrics() -> StepMetrics:
    """Return the metrics of this process."""
    return StepMetrics()


def count_step(step: CountedStep, engine: int = 0) -> None:
    """Count a step.

    Args:
        step: the step.
        engine: number of the engine; 0 if there is only one.
    """
    step_metrics().count(step, engine)
