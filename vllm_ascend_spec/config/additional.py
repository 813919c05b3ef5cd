"""Our section of ``--additional-config``, beside the keys of other packages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from difflib import SequenceMatcher
from typing import Any

from vllm_ascend_spec.config.old_names import KEYS
from vllm_ascend_spec.config.schema import SECTION, SpecOptions
from vllm_ascend_spec.errors import ConfigError

OPTION = "additional_config"
# No other package has keys of these names.
SPECULATION = frozenset({*KEYS, "speculative_config", "num_speculative_tokens_per_batch_size"})
OURS = frozenset(each.name for each in fields(SpecOptions))
# A key at least this similar is taken for our section misspelt: "ascend_spce" has 0.9; the
# nearest of vllm-ascend's own keys, "ascend_log_path", has 0.61.
NEAR = 0.84
PACKAGE = "vllmascendspec"


def section_of(additional_config: Any) -> Any:
    """Return our section of ``--additional-config``, or an empty one."""
    section = additional_config.get(SECTION) if isinstance(additional_config, Mapping) else None
    return {} if section is None else section


def check_additional(additional_config: Any) -> Any:
    """Check the keys around our section for mistakes; keys of other packages are not checked.

    Args:
        additional_config: as given by the user; in Python anything that vLLM can hash.

    Returns:
        Our section, unchecked.

    Raises:
        ConfigError: it is not a JSON object, has our section under a misspelt name, or has keys
            that belong to the speculative config or into our section.
    """
    if not isinstance(additional_config, Mapping):
        if hasattr(additional_config, "compute_hash"):
            return {}
        raise ConfigError(OPTION, additional_config, "must be a JSON object, e.g. {}")
    for key, value in additional_config.items():
        if str(key).replace("-", "_") in SPECULATION:
            problem = "would be ignored; speculation is asked for by --speculative-config '{…}'"
            raise ConfigError(f"{OPTION}.{key}", value, problem)
        if key in OURS:
            valid = f"would be ignored; write it within {SECTION!r}: {{…}}"
            raise ConfigError(f"{OPTION}.{key}", value, valid)
        if key != SECTION and isinstance(key, str) and is_misspelt(key):
            raise ConfigError(f"{OPTION}.{key}", value, f"would be ignored; valid: {SECTION!r}")
    return section_of(additional_config)


def is_misspelt(key: str) -> bool:
    """Tell whether ``key`` is nearly the name of our section."""
    letters = _letters(key)
    return letters == PACKAGE or SequenceMatcher(None, letters, _letters(SECTION)).ratio() >= NEAR


def _letters(key: str) -> str:
    return re.sub(r"[^a-z0-9]", "", key.lower())
