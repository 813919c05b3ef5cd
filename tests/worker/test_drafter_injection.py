"""Our drafter is built where vLLM would build its own, for any method."""

from __future__ import annotations

import ast
import inspect
import textwrap
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.worker import gpu_model_runner as stock
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from vllm_ascend_spec.worker.drafter_injection import FIRST_ASKED, inject_drafter


@pytest.fixture(autouse=True)
def _last_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock, "get_pp_group", lambda: SimpleNamespace(is_last_rank=True))


def config(method: str = "telepathy") -> Any:
    return SimpleNamespace(speculative_config=SimpleNamespace(method=method))


def stock_init(engine: Any) -> list[Any]:
    """Do what the runner's ``__init__`` does: return the drafter, and the method it saw after."""
    spec = engine.speculative_config
    if spec.method != "custom_class":
        raise ValueError(f"Unknown speculative decoding method: {spec.method}")
    return [stock.create_custom_proposer(engine), spec.method]


def test_any_method_gets_its_drafter_and_nothing_else_is_built() -> None:
    engine, create = config(), stock.create_custom_proposer
    seen: list[str] = []

    def build() -> str:
        # The drafter's own __init__ reads the method.
        seen.append(engine.speculative_config.method)
        return "ours"

    with inject_drafter(build, engine):
        assert stock_init(engine) == ["ours", "telepathy"]
    assert seen == ["telepathy"]
    assert engine.speculative_config.method == "telepathy"
    assert stock.create_custom_proposer is create


def test_vllm_alone_refuses_the_method() -> None:
    with pytest.raises(ValueError, match="Unknown speculative decoding method"):
        stock_init(config())


def test_what_was_lent_is_given_back_after_an_error() -> None:
    engine, create = config(), stock.create_custom_proposer
    with pytest.raises(ZeroDivisionError), inject_drafter(lambda: None, engine):
        raise ZeroDivisionError
    assert engine.speculative_config.method == "telepathy"
    assert stock.create_custom_proposer is create


def test_nothing_is_touched_without_speculation() -> None:
    create = stock.create_custom_proposer
    with inject_drafter(lambda: None, SimpleNamespace(speculative_config=None)):  # type: ignore[arg-type]
        assert stock.create_custom_proposer is create


def test_ranks_without_a_drafter_see_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of vLLM's would call for a drafter there, and give the method back."""
    monkeypatch.setattr(stock, "get_pp_group", lambda: SimpleNamespace(is_last_rank=False))
    engine = config()
    with inject_drafter(lambda: None, engine):
        assert engine.speculative_config.method == "telepathy"


def test_vllm_asks_first_for_a_persons_class() -> None:
    """In vLLM's ``__init__`` nothing looks at the method before; when this fails, look there."""
    source = textwrap.dedent(inspect.getsource(GPUModelRunner.__init__))
    method = next(
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Compare) and ast.unparse(node.left).endswith("config.method")
    )
    assert ast.unparse(method) == f"self.speculative_config.method == '{FIRST_ASKED}'"
    lines = source.splitlines()[: method.lineno - 1]
    asked = [line for line in lines if "speculative_config.use" in line]
    assert asked == []
    assert "create_custom_proposer(" in source
