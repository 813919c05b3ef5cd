"""The ``collect_…`` options: finished requests of live traffic, written to a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_ascend_spec.config.additional import section_of
from vllm_ascend_spec.config.schema import COLLECT_FOLDER, SECTION, TEXT, SpecOptions

OPTION = f"additional_config.{SECTION}.{COLLECT_FOLDER}"
MAX_BYTES = f"additional_config.{SECTION}.collect_max_bytes"


@dataclass(frozen=True)
class Collecting:
    """What is collected, and where.

    Attributes:
        folder: the folder that gets it.
        rate: share of the finished requests, above 0 and up to 1.
        max_bytes: maximum size of all that is collected in the folder.
        has_text: whether the texts are written beside the token ids.
    """

    folder: Path
    rate: float
    max_bytes: int
    has_text: bool

    def describe(self) -> str:
        """Return one line for the log."""
        what = "token ids and texts" if self.has_text else "token ids"
        return (
            f"Prompts are collected: {what} of {self.rate:.3g} of all finished requests "
            f"are written to {self.folder}, {self.max_bytes:,} bytes at most. To switch it off, "
            f"leave out {OPTION}."
        )


def wants_collecting(additional_config: Any) -> bool:
    """Tell whether ``--additional-config``, still unchecked, asks to collect."""
    section = section_of(additional_config)
    return isinstance(section, Mapping) and isinstance(section.get(COLLECT_FOLDER), str)


def collecting_of(additional_config: Any) -> Collecting | None:
    """Return what ``--additional-config`` asks to collect; None if it does not.

    Raises:
        ConfigError: our section has an invalid option.
    """
    if not wants_collecting(additional_config):
        return None
    options = SpecOptions.from_mapping(section_of(additional_config))
    return Collecting(
        Path(str(options.collect_folder)).expanduser().absolute(),
        options.collect_rate,
        options.collect_max_bytes,
        options.collect_what == TEXT,
    )
