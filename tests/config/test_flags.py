"""Flags that are given as text mean what they say, with a warning."""

from __future__ import annotations

from typing import Any

import pytest

from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.config.flags import with_flags
from vllm_ascend_spec.config.options import OPTIONS
from vllm_ascend_spec.entry.preflight import resolve_engine
from vllm_ascend_spec.errors import ConfigError

PADDED = "disable_padded_drafter_batch"


@pytest.mark.parametrize(("text", "meant"), [("False", False), ("true", True), ("FALSE", False)])
def test_texts_are_flags(text: str, meant: bool) -> None:
    found, (warning,) = with_flags({"method": "eagle", PADDED: text})
    assert found == {"method": "eagle", PADDED: meant}
    assert f"speculative_config.{PADDED}={text!r} is a text" in warning


def test_every_flag_and_nothing_else() -> None:
    found, warnings = with_flags(dict.fromkeys(OPTIONS, "true"))
    flags = {name for name, value in found.items() if value is True}
    assert flags == {
        "enforce_eager",
        PADDED,
        "disable_eagle_block_drop",
        "use_local_argmax_reduction",
        "parallel_drafting",
        "use_heterogeneous_vocab",
    }
    assert len(warnings) == len(flags)


def test_the_warning_is_among_what_a_person_is_told() -> None:
    found = resolve_engine(TARGET, {**SPECS["eagle"], PADDED: "False"})
    assert found is not None
    assert found.options[PADDED] is False
    assert any(PADDED in warning for warning in found.warnings)
    plain = resolve_engine(TARGET, {**SPECS["eagle"], PADDED: False})
    assert plain is not None
    assert not any(PADDED in warning for warning in plain.warnings)


@pytest.mark.parametrize("value", ["no", "", "0", 0])
def test_other_texts_are_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="valid: true or false"):
        resolve_engine(TARGET, {**SPECS["eagle"], PADDED: value})


def test_vllm_takes_the_text_for_the_same() -> None:
    from vllm.engine.arg_utils import EngineArgs

    from tests.engines import ENGINE

    args = EngineArgs(**ENGINE, speculative_config={**SPECS["eagle"], PADDED: "False"})
    config = args.create_engine_config()
    assert config.speculative_config is not None
    assert config.speculative_config.disable_padded_drafter_batch is False
