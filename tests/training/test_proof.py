"""An engine that fails while heads are measured; tests/e2e/test_train_command.py has the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.proof_folder import GOOD, set_up
from vllm_ascend_spec.training.phases import proof


def test_an_engine_that_fails_ends_the_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = set_up(tmp_path / "out", GOOD)
    monkeypatch.setattr(proof, "MEASURE", "tests.training.nothing")
    with pytest.raises(SystemExit) as end:
        proof.run(settings, lambda _: None)
    assert end.value.code == 1
    assert not proof.is_done(settings)
