"""Every error this package raises on purpose.

    AscendSpecError
    ├── ConfigError (ValueError)      a wrong option: names it, its value and what is valid
    │   └── CheckpointError           a draft or target checkpoint that cannot be used
    ├── FlagsError (ValueError)       flags of `vllm serve` that vLLM's own parser rejects
    ├── UnsupportedVersionError (RuntimeError)   vLLM is missing or outside the range
    ├── PlatformError (RuntimeError)             the device's platform cannot be used
    ├── BackendUnavailableError (RuntimeError)   an op backend requested by name is unavailable
    ├── CustomProposerError (RuntimeError)   a user's proposer returned something invalid
    ├── ExtensionError (RuntimeError)    a method or device of another package cannot be used
    └── UnguardedScriptError (RuntimeError)  a script starts an engine while it is imported

Anything else that escapes is a bug of ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from vllm_ascend_spec.messages import one_line


class AscendSpecError(Exception):
    """Base of all errors raised on purpose by this package."""


class ConfigError(AscendSpecError, ValueError):
    """An option has an invalid value. The message is one line, however long the value is.

    Args:
        option: the option as the user wrote it, e.g. ``speculative_config.method``.
        value: the value that was given.
        problem: why it cannot be used, and what is valid.
    """

    def __init__(self, option: str, value: object, problem: str) -> None:
        super().__init__(one_line(option, value, problem))
        self.option = option
        self.value = value
        self.problem = problem

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, object, str]]:
        # The engine runs in a subprocess; the error has to survive pickling.
        return type(self), (self.option, self.value, self.problem)


class CheckpointError(ConfigError):
    """A checkpoint is missing, has an unsupported format, or does not fit its target."""


class FlagsError(AscendSpecError, ValueError):
    """vLLM's own parser rejects flags of ``vllm serve``; the message is vLLM's."""


class UnsupportedVersionError(AscendSpecError, RuntimeError):
    """vLLM is missing, or its version is not one this release supports."""


class PlatformError(AscendSpecError, RuntimeError):
    """Two platforms are active, or the device's software is missing or incompatible."""


class BackendUnavailableError(AscendSpecError, RuntimeError):
    """A backend that was requested by name does not exist or cannot run here."""


class CustomProposerError(AscendSpecError, RuntimeError):
    """A user's proposer (method ``custom_class``) returned something that is not drafts."""


class ExtensionError(AscendSpecError, RuntimeError):
    """Another package's method or device fails to import, has a wrong type or a taken name."""


class UnguardedScriptError(AscendSpecError, RuntimeError):
    """A script starts an engine outside ``if __name__ == "__main__":``."""


def did_you_mean(given: object, names: Iterable[str], likeness: float = 0.6) -> str:
    """Return ``did you mean 'NAME'? `` to put before the valid values, or an empty text.

    Args:
        given: what the user wrote.
        names: the valid names.
        likeness: least similarity of a suggested name, from 0 to 1, as :mod:`difflib` counts it.
    """
    if not isinstance(given, str):
        return ""
    known = {_letters(name): name for name in names}
    near = get_close_matches(_letters(given), known, n=1, cutoff=likeness)
    return f"did you mean {known[near[0]]!r}? " if near else ""


def _letters(name: str) -> str:
    """Return a name without differences of case, hyphens and outer underscores."""
    return name.lower().replace("-", "_").strip("_")
