"""Which requests are refused, and for which engines."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from vllm_ascend_spec.config.resolved import ATTRIBUTE
from vllm_ascend_spec.config.schedulers import SCHEDULERS
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks.request_hook import check, check_seed

OURS = SCHEDULERS[False, True]


def engine(method: str | None, scheduler: Any = OURS) -> Any:
    """Return an engine's configuration, as far as it is looked at."""
    speculation = SimpleNamespace(method=method, max_k=3)
    spec = None if method is None else SimpleNamespace(**{ATTRIBUTE: speculation})
    return SimpleNamespace(
        speculative_config=spec, scheduler_config=SimpleNamespace(scheduler_cls=scheduler)
    )


@pytest.mark.parametrize("scheduler", SCHEDULERS.values())
@pytest.mark.parametrize("method", ["eagle", "ngram", "hybrid", None])
def test_every_engine_with_a_scheduler_of_ours_takes_it(method: str, scheduler: str) -> None:
    check({"speculation": "off"}, engine(method, scheduler))


@pytest.mark.parametrize(
    ("seed", "count"), [(None, 1), (-1, 1), (-(1 << 63), 1), ((1 << 64) - 1, 1), ((1 << 64) - 4, 4)]
)
def test_seeds_of_64_bits(seed: int | None, count: int) -> None:
    check_seed(seed, count)


@pytest.mark.parametrize(("seed", "count"), [(1 << 64, 1), (-(1 << 63) - 1, 1), ((1 << 64) - 1, 2)])
def test_seeds_that_are_too_long(seed: int, count: int) -> None:
    with pytest.raises(ConfigError, match=r"seed=-?\d+: valid: a whole number from -2\^63 to"):
        check_seed(seed, count)


@pytest.mark.parametrize("extra_args", [None, {}, {"another": 1}])
def test_requests_that_do_not_ask_are_not_looked_at(extra_args: Any) -> None:
    """Nor is the engine, which may be of a platform that is not ours."""
    check(extra_args, None)


@pytest.mark.parametrize(
    ("method", "scheduler", "value", "problem"),
    [
        ("eagle", OURS, 4, "the maximum number of drafts, 0 to 3"),
        ("eagle", "their.Scheduler", "off", "not possible with the scheduler 'their.Scheduler'"),
        ("extract_hidden_states", OURS, "off", "method 'extract_hidden_states', whose drafts are"),
        (None, None, 1, "does not speculate"),
    ],
)
def test_refusals(method: str | None, scheduler: Any, value: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        check({"speculation": value}, engine(method, scheduler))
