"""Run an engine of another environment's vLLM in its own process, taking turns with ours."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from tests.benchmarks import interleaved
from tests.benchmarks.interleaved import OfflineLoad, PassFigures
from vllm_ascend_spec.bench.peer import Peer
from vllm_ascend_spec.bench.privacy import redact
from vllm_ascend_spec.config.schema import FIXED, SECTION
from vllm_ascend_spec.errors import AscendSpecError

LOG_TAIL_LINES = 20


def fixed_length(peer: Peer) -> dict[str, Any]:
    """Return arguments of its ``LLM`` that fix K as in ours, if it has this package."""
    if SECTION not in peer.plugins:  # our plugin has the name of our options
        return {}
    return {"additional_config": {SECTION: {"draft_length": FIXED}}}


class PeerError(AscendSpecError, RuntimeError):
    """The peer's process ended; the message ends with its output."""


class PeerEngine(PassFigures):
    """An engine of a peer, used like one of this process; use it as a context manager.

    Args:
        peer: the peer that runs the engine.
        arguments: arguments of its ``LLM``.
        load: the requests to send.
        parts: parts to time, as for :class:`InterleavedEngine`.
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
            "arguments": {**arguments, **fixed_length(peer)},
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
