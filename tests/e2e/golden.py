"""What records say that drafts of the tests' models are worth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.zoo import MODELS, ZOO


def results(models: Path) -> dict[str, Any]:
    """Return the figures of each way to draft, with the models of a folder."""
    return json.loads((models / "evaluation.json").read_text())["results"]


# DeepSeek's are the zoo's alone.
RECORD = results(ZOO) | results(MODELS)
# Another processor rounds otherwise, and a drawn token decides all that follow it.
LEAST_SHARE = 0.95
# The name there of each method that tests/zoo.py has with the same options: its greedy figure is of
# the very requests that test_greedy_equality.py makes.
IN_RECORD = {
    **{name: name for name in ("eagle", "eagle3", "draft_model", "pard", "peagle")},
    **{name: name for name in ("dflash", "dspark", "medusa", "mlp_speculator")},
    "mtp": "mtp, MiMo",
}


def is_worth_its_record(name: str, request: str, tokens_per_step: float) -> bool:
    """Tell whether drafts are accepted about as often as they were."""
    golden = RECORD[name][request]["tokens_per_step"]
    return tokens_per_step - 1 >= LEAST_SHARE * (golden - 1)
