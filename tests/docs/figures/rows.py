"""Records and rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.docs.blocks import ROOT

Record = Mapping[str, Any]


def read(name: str) -> Record:
    """Return a record of docs/records."""
    return json.loads((ROOT / "docs" / "records" / f"{name}.json").read_text())


def row(*cells: str) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cells)} |\n"


def median(found: Record) -> str:
    """Return the median of a ratio with its lowest and its highest round."""
    return f"**{found['median']:.2f}** ({found['low']:.2f}-{found['high']:.2f})"
