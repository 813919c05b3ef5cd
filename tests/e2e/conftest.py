"""Engines on the zoo's checkpoints, in this process; built once and shared."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.e2e.answers import Answers
from tests.e2e.workers import copied
from tests.engines import (
    ENGINE,
    MAX_TOKENS,
    Generate,
    MakeEngine,
    inspect_models_here,
    session_folder,
    with_fixed_length,
)
from tests.marks import names_a_limit
from tests.zoo import ZOO, target_of
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.upstream import limits


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder is an end-to-end test."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def prompts() -> list[str]:
    """The held-out prompts, about a hundred tokens each."""
    return json.loads((ZOO / "prompts.json").read_text())


# More of a module would fill the memory; the one made first is not needed any more.
MOST_ENGINES = 20


def shut_down(engines: list[Any]) -> None:
    """End engines; without that vLLM's globals keep their memory."""
    if not engines:
        return
    with pytest.MonkeyPatch.context() as patch:
        # Each shutdown looks for garbage in all that there is, twice; once and in what is new is
        # enough.
        patch.setattr(gc, "collect", lambda *_: 0)
        patch.setattr(gc, "unfreeze", lambda: None)
        # Popped, so that no name holds the last one while garbage is collected.
        while engines:
            engines.pop(0).llm_engine.engine_core.shutdown()
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def end_groups() -> None:
    """End the process groups of vLLM that there are."""
    from vllm.distributed import destroy_distributed_environment, destroy_model_parallel

    destroy_model_parallel()
    destroy_distributed_environment()


@contextmanager
def nothing_ends_meanwhile() -> Iterator[None]:
    """Let no garbage be collected while an engine starts.

    vLLM's oneDNN weights call an op as they end, which fails in the middle of a compilation. What
    the start leaves is looked through once, and again when engines end.
    """
    gc.collect()
    gc.disable()
    try:
        with pytest.MonkeyPatch.context() as patch:
            # vLLM collects three times itself, and keeps what there is then from being collected.
            patch.setattr(gc, "collect", lambda *_: 0)
            patch.setattr(gc, "freeze", lambda: None)
            yield
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@contextmanager
def skipped_where_a_version_cannot() -> Iterator[None]:
    """Skip a test of what the installed version cannot do, in the words that refuse it."""
    try:
        yield
    except ConfigError as refused:
        if names_a_limit(str(refused)):
            pytest.skip(str(refused))
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    """Let a test end so where one of its fixtures is refused."""
    with skipped_where_a_version_cannot():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Let a test end so wherever it is refused."""
    with skipped_where_a_version_cannot():
        return (yield)


def check_config(arguments: dict[str, Any]) -> None:
    """Skip a test before engines are touched, where the installed version lacks something."""
    from vllm import EngineArgs

    if limits.EVERY:
        with skipped_where_a_version_cannot():
            EngineArgs(**arguments).create_engine_config()


@pytest.fixture(scope="module")
def engine_model() -> str | None:
    """The model of a module's engines, if not the target of their drafts in ``tests/zoo.py``."""
    return None


def has_experts(model: str) -> bool:
    """Tell whether a checkpoint is a mixture of experts."""
    config = json.loads((Path(model) / "config.json").read_text())
    return any(config.get(name) for name in ("num_experts", "num_local_experts"))


@pytest.fixture(scope="module")
def make_engine(engine_model: str | None) -> Iterator[MakeEngine]:
    """Return ``make(spec=None, **arguments) -> LLM``; equal arguments give the same engine.

    K is fixed unless ``additional_config`` says otherwise, see :func:`with_fixed_length`.

    Engines live as long as the module, the latest :data:`MOST_ENGINES` of those that speculate.
    """
    engines: dict[str, Any] = {}
    inspect_models_here()

    def make(spec: dict[str, Any] | None = None, **arguments: Any) -> Any:
        from vllm import LLM

        key = json.dumps([spec, arguments], sort_keys=True, default=repr)
        if key not in engines:
            given = {**ENGINE, "model": engine_model or target_of(spec), **arguments}
            if spec is not None:
                # vLLM fills what it is given, so it gets a copy each time.
                given = with_fixed_length(given) | {"speculative_config": dict(spec)}
                check_config(deepcopy(given))
            speculative = [name for name in engines if not name.startswith("[null")]
            # Before the next one starts, which is sure to: an end takes down vLLM's process
            # groups, which all engines of a process share, and a start sets them up.
            shut_down([engines.pop(name) for name in speculative[: 1 - MOST_ENGINES]])
            if has_experts(given["model"]):
                # vLLM sets up a group for experts only if the first engine of a process has some;
                # a test elsewhere may have left groups, as a start that fails does.
                shut_down([engines.pop(name) for name in list(engines)])
                end_groups()
            with nothing_ends_meanwhile():
                engines[key] = LLM(**given)
        return engines[key]

    yield make
    # Nothing else may hold them: what is left would be collected in the midst of another test.
    left = list(engines.values())
    engines.clear()
    shut_down(left)


@pytest.fixture(scope="module")
def copied_workers() -> Iterator[None]:
    """Let workers be copies of a process that has imported vLLM; by night they start anew."""
    if "TESTS_COMPILE_ALL" in os.environ:
        yield
        return
    with copied():
        yield


@pytest.fixture(scope="session")
def generate() -> Generate:
    """Return ``generate(llm, prompts, batch, **sampling) -> outputs``.

    ``batch`` at a time; by default a request takes the place of each one that ends.
    """

    def run(llm: Any, texts: Sequence[str], batch: int | None = None, **sampling: Any) -> list[Any]:
        from vllm import SamplingParams

        parameters = SamplingParams(
            **{"temperature": 0, "max_tokens": MAX_TOKENS, "ignore_eos": True, **sampling}
        )
        outputs, batch = [], batch or len(texts)
        for first in range(0, len(texts), batch):
            outputs += llm.generate(texts[first : first + batch], parameters, use_tqdm=False)
        return [output.outputs[0] for output in outputs]

    return run


@pytest.fixture(scope="module")
def plain_arguments(engine_model: str | None) -> dict[str, Any]:
    """Further arguments of the engine without speculation."""
    return {} if engine_model is None else {"model": engine_model}


@pytest.fixture(scope="module")
def plain(make_engine: MakeEngine, plain_arguments: dict[str, Any]) -> Any:
    """The engine without speculation."""
    return make_engine(**plain_arguments)


@pytest.fixture(scope="session")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What engines without speculation have answered."""
    return Answers(session_folder(tmp_path_factory, "answers"))


@pytest.fixture(scope="module")
def expect(
    answers: Answers, make_engine: MakeEngine, plain_arguments: dict[str, Any], generate: Generate
) -> Callable[..., list[Any]]:
    """Return ``expect(prompts, engine={}, **sampling) -> outputs`` without speculation.

    By default greedily; a request that samples has a seed.

    ``engine`` has further arguments of the engine. Many tests compare engines with the same
    answers; they are worked out once.
    """

    def expected(
        texts: Sequence[str], engine: Mapping[str, Any] = MappingProxyType({}), **sampling: Any
    ) -> list[Any]:
        assert "temperature" not in sampling or "seed" in sampling, "another answer each time"
        arguments = {**plain_arguments, **engine}
        return answers.get(
            texts,
            {**arguments, **{f"request's {name}": value for name, value in sampling.items()}},
            lambda missing: generate(make_engine(**arguments), missing, **sampling),
        )

    return expected
