"""The YAML file of ``--config``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vllm_ascend_spec.errors import ConfigError

OPTION = "--config"


def read_options(path: Path) -> dict[str, Any]:
    """Return the options in a file, by name.

    Raises:
        ConfigError: it cannot be read, or holds something else.
    """
    import yaml

    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        said = " ".join(str(error).split())
        raise ConfigError(OPTION, str(path), f"cannot be read: {said}") from None
    if not isinstance(found, dict):
        raise ConfigError(OPTION, str(path), "valid: a YAML file of options, each NAME: VALUE")
    return found
