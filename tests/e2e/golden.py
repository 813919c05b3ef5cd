"""What the zoo's record says that drafts are worth."""

from __future__ import annotations

import json
from typing import Any

from tests.zoo import ZOO

RECORD: dict[str, Any] = json.loads((ZOO / "evaluation.json").read_text())
# Another processor rounds otherwise, and a drawn token decides all that follow it.
LEAST_SHARE = 0.95
# The name there of each method that tests/zoo.py has with the same options: its greedy figure is of
# the very requests that test_greedy_equality.py makes.
IN_RECORD = {
    **{name: name for name in ("eagle", "eagle3", "draft_model", "pard", "peagle", "dflash")},
    **{name: name for name in ("medusa", "mlp_speculator")},
    "mtp": "mtp, MiMo",
}


def is_worth_its_record(name: str, request: str, tokens_per_step: float) -> bool:
    """Tell whether drafts are accepted about as often as they were."""
    golden = RECORD["results"][name][request]["tokens_per_step"]
    return tokens_per_step - 1 >= LEAST_SHARE * (golden - 1)
