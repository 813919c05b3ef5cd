"""Every error this package raises on purpose.

    AscendSpecError
    ├── ConfigError (ValueError)      an option: names it, its value and what is valid
    │   └── CheckpointError           a draft or target checkpoint that cannot be used
    ├── FlagsError (ValueError)       flags of `vllm serve` that vLLM's own parser refuses
    ├── UnsupportedVersionError (RuntimeError)   vLLM is missing or outside the range
    ├── PlatformError (RuntimeError)             the device's platform cannot be used
    ├── BackendUnavailableError (RuntimeError)   an op backend asked for by name is not there
    ├── CustomProposerError (RuntimeError)   a person's proposer returned what cannot be used
    ├── ExtensionError (RuntimeError)    a method or device of another package cannot be used
    └── UnguardedScriptError (RuntimeError)  a script starts an engine while it is imported

Anything else that escapes is a bug of ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from vllm_ascend_spec.one_line import one_line


class AscendSpecError(Exception):
    """Base of all errors raised on purpose by this package."""


class ConfigError(AscendSpecError, ValueError):
    """An option has a value that cannot be used. Its message is one line, however long the value.

    Args:
        option: the option as the person wrote it, e.g. ``speculative_config.method``.
        value: what was given.
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
    """A checkpoint is missing, in a format that is not loaded, or does not fit its target."""


class FlagsError(AscendSpecError, ValueError):
    """Flags of ``vllm serve`` that vLLM's own parser refuses; the message is vLLM's."""


class UnsupportedVersionError(AscendSpecError, RuntimeError):
    """vLLM is missing, or its version is not one this release supports."""


class PlatformError(AscendSpecError, RuntimeError):
    """Two platforms are active, or the device's software is missing or does not fit."""


class BackendUnavailableError(AscendSpecError, RuntimeError):
    """A backend that was asked for by name does not exist or cannot run here."""


class CustomProposerError(AscendSpecError, RuntimeError):
    """A proposer of method ``custom_class`` returned something that is no drafts."""


class ExtensionError(AscendSpecError, RuntimeError):
    """A method or a device of another package cannot be imported, is none, or has a taken name."""


class UnguardedScriptError(AscendSpecError, RuntimeError):
    """A script starts an engine outside ``if __name__ == "__main__":``."""


def did_you_mean(given: object, names: Iterable[str], likeness: float = 0.6) -> str:
    """Return ``did you mean 'NAME'? ``, to be put before what is valid, or nothing.

    Args:
        given: what a person wrote.
        names: that there are.
        likeness: of the nearest one at least, from 0 to 1, as :mod:`difflib` has it.
    """
    if not isinstance(given, str):
        return ""
    known = {_letters(name): name for name in names}
    near = get_close_matches(_letters(given), known, n=1, cutoff=likeness)
    return f"did you mean {known[near[0]]!r}? " if near else ""


def _letters(name: str) -> str:
    """Return a name without what people often write another way."""
    return name.lower().replace("-", "_").strip("_")
