"""The options of method suffix, and its library."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.imports import heavy_imports_of
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks.preflight import resolve_engine
from vllm_ascend_spec.methods.suffix import checks

ROOT = Path(__file__).parents[3]
SPEC = {"method": "suffix", "num_speculative_tokens": 5}
DEPTH = "suffix_decoding_max_tree_depth"
CACHED = "suffix_decoding_max_cached_requests"
FACTOR = "suffix_decoding_max_spec_factor"
PROB = "suffix_decoding_min_token_prob"


def resolve(**more: Any) -> Any:
    return resolve_engine("org/target", {**SPEC, **more})


@pytest.mark.parametrize(
    ("option", "value"),
    [(DEPTH, 2), (DEPTH, 1024), (CACHED, 0), (CACHED, 10**6), (FACTOR, 8), (PROB, 0), (PROB, 1.0)],
)
def test_valid_values_pass(option: str, value: Any) -> None:
    assert resolve(**{option: value}).options == {option: value}


@pytest.mark.parametrize(
    ("option", "value", "valid"),
    [
        (DEPTH, 1, "a whole number from 2 to 1024"),
        (DEPTH, 1025, "a whole number from 2 to 1024"),
        (DEPTH, 24.0, "a whole number from 2 to 1024"),
        (DEPTH, True, "a whole number from 2 to 1024"),
        (CACHED, -1, "a whole number from 0 to"),
        (CACHED, 2**31, "a whole number from 0 to 2147483647"),
        (FACTOR, -0.5, "a number from 0 to 1024"),
        (FACTOR, float("nan"), "a number from 0 to 1024"),
        (FACTOR, "one", "a number from 0 to 1024"),
        (PROB, 1.01, "a number from 0 to 1"),
        (PROB, None, "a number from 0 to 1"),
    ],
)
def test_others_are_refused_with_what_is_valid(option: str, value: Any, valid: str) -> None:
    with pytest.raises(ConfigError) as raised:
        resolve(**{option: value})
    assert raised.value.option == f"speculative_config.{option}"
    assert f"valid: {valid}" in str(raised.value)


def test_a_factor_that_never_drafts_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"never drafts; valid: from 0.0435 on.*24 - 1|= 23"):
        resolve(**{FACTOR: 0.04})
    resolve(**{FACTOR: 0.0435})
    resolve(**{FACTOR: 0.04, DEPTH: 40})


def test_drafts_that_are_never_so_long_are_warned_of() -> None:
    """With one draft for each token matched, the longest is half as long as the tree is deep."""
    warnings = [w for w in resolve(num_speculative_tokens=15).warnings if "never reached" in w]
    assert len(warnings) == 1
    assert "num_speculative_tokens=15 is never reached" in warnings[0]
    assert "has 12 tokens" in warnings[0]
    for enough in ({"num_speculative_tokens": 12}, {"num_speculative_tokens": 15, DEPTH: 30}):
        assert not any("never reached" in w for w in resolve(**enough).warnings)


@pytest.mark.parametrize(
    "option", [{"model": "org/draft"}, {"draft_sample_method": "probabilistic"}, {"max_n": 3}]
)
def test_options_of_others_have_no_effect(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="has no effect with method 'suffix'"):
        resolve(**option)


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """arctic-inference is not installed."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "arctic_inference"]:
        monkeypatch.delitem(sys.modules, name)

    class Finder:
        def find_spec(self, name: str, *_: Any) -> None:
            if name.partition(".")[0] == "arctic_inference":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])


@pytest.mark.usefixtures("without_library")
@pytest.mark.parametrize("method", ["suffix", "hybrid"])
def test_a_missing_library_is_one_line_with_the_command(method: str) -> None:
    model = {"model": str(ROOT / "examples" / "zoo" / "eagle")} if method == "hybrid" else {}
    with pytest.raises(ConfigError) as raised:
        resolve_engine(None, {"method": method, "num_speculative_tokens": 3, **model})
    message = str(raised.value)
    assert message.startswith(
        f"speculative_config.method={method!r}: needs arctic-inference, which"
    )
    assert message.endswith(checks.INSTALL)
    assert "\n" not in message


def test_a_library_that_cannot_be_imported_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "LIBRARY", "tests.methods.suffix.broken_library")
    assert checks.library_problem() == (
        "arctic-inference cannot be imported (no symbol of that name)"
    )
    monkeypatch.setattr(checks, "LIBRARY", "tests.methods.suffix.lacking_library")
    assert checks.library_problem() == "arctic-inference needs no_such_module"


def test_the_library_is_here_and_brings_no_torch() -> None:
    assert checks.library_problem() is None
    assert set(heavy_imports_of(checks.LIBRARY)) <= {"numpy"}


def test_the_command_is_the_one_that_the_setup_runs() -> None:
    script = (ROOT / ".ci" / "get-arctic-inference").read_text()
    requirement = checks.INSTALL.rpartition(" ")[2]
    assert f"requirement={requirement}\n" in script
    for part in ("nanobind==2.9.2", "grpcio-tools", "cmake", "--no-deps", "--no-build-isolation"):
        assert part in script
        assert part in checks.INSTALL
