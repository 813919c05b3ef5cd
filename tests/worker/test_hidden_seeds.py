"""Seeds for requests that have none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from vllm_ascend_spec.worker.hidden_seeds import HiddenSeeds


def seeds(seed: int = 0, rank: int = 0) -> HiddenSeeds:
    config: Any = SimpleNamespace(
        model_config=SimpleNamespace(seed=seed),
        parallel_config=SimpleNamespace(data_parallel_rank=rank),
    )
    return HiddenSeeds(config)


def given(of: HiddenSeeds, *ids: str) -> list[int]:
    return [of.of(name, SimpleNamespace()) for name in ids]


def test_each_request_has_another() -> None:
    found = given(seeds(), *(str(index) for index in range(1000)))
    assert len(set(found)) == 1000
    assert all(0 <= seed < 2**63 for seed in found)


def test_a_request_keeps_its_own() -> None:
    of, state = seeds(), SimpleNamespace()
    first = of.of("a", state)
    assert given(of, "b") != [first]
    assert of.of("a", state) == first


def test_a_script_gets_the_same_in_every_run_whatever_vllm_puts_behind_an_id() -> None:
    assert given(seeds(), "0-0123abcd", "1-4567cdef") == given(seeds(), "0-89abcdef", "1-76543210")
    assert given(seeds(), "0") == given(seeds(), "0-89abcdef")


def test_engines_replicas_and_servers_differ() -> None:
    found = [seeds(), seeds(seed=1), seeds(rank=1)]
    assert len({given(of, "0")[0] for of in found}) == 3
    assert given(seeds(), "cmpl-one") != given(seeds(), "cmpl-two")


def test_an_id_that_comes_again_has_another() -> None:
    of = seeds()
    assert len(set(given(of, "same", "same", "same"))) == 3
