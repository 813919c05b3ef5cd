"""Takes finished requests from the process that serves, and writes them in a thread of its own.

Serving never waits: what the disk does not take in time is dropped and counted.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence

from vllm_ascend_spec.collect.folder import CollectedFolder
from vllm_ascend_spec.collect.record import Finished
from vllm_ascend_spec.config.collect import MAX_BYTES, Collecting
from vllm_ascend_spec.log import get_logger, log_once
from vllm_ascend_spec.metrics.collected import BUSY, FAILED, FULL, KEY, WRITTEN, count_collected

logger = get_logger(__name__)

# Tokens that may wait for the disk, about 150 MB of numbers.
MOST_TOKENS = 1 << 22
# Requests that are written at once.
BATCH = 64
CLOSE_TIMEOUT_S = 5.0


class Collector:
    """Writes finished requests.

    Args:
        collecting: what is asked for.
        target: name of the engine's checkpoint; None if it is not known.
        with_text: returns a request with its texts; called in the thread that writes.
    """

    def __init__(
        self,
        collecting: Collecting,
        target: str | None,
        with_text: Callable[[Finished], Finished] = lambda finished: finished,
    ) -> None:
        self._collecting, self._target, self._with_text = collecting, target, with_text
        self._folder = CollectedFolder(collecting.folder, collecting.max_bytes)
        self._queue: queue.SimpleQueue[Finished | None] = queue.SimpleQueue()
        self._lock, self._waiting = threading.Lock(), 0
        self._thread = threading.Thread(target=self._run, name="collected-requests", daemon=True)

    def start(self) -> None:
        """Create the folder, and begin to write what is offered.

        Raises:
            OSError: the folder cannot be used.
        """
        self._folder.open()
        self._thread.start()

    def offer(self, finished: Finished) -> None:
        """Write a request soon, or drop it if too much waits for the disk; returns at once."""
        with self._lock:
            fits = self._waiting + len(finished) <= MOST_TOKENS
            self._waiting += len(finished) if fits else 0
        if fits:
            self._queue.put(finished)
        else:
            count_collected(BUSY)

    def close(self) -> None:
        """Write what waits, and end."""
        self._queue.put(None)
        # Garbage may be collected in any thread.
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch = [self._queue.get()]
            while len(batch) < BATCH and not self._queue.empty():
                batch.append(self._queue.get())
            is_open = None not in batch
            found = [finished for finished in batch if finished is not None]
            try:
                self._write(found)
            except Exception as error:
                # Whatever it is, the requests that are served need nothing of it.
                count_collected(FAILED, len(found))
                log_once(
                    logging.WARNING,
                    f"collected requests cannot be written to {self._collecting.folder} ({error}); "
                    "they are dropped and counted until that works again",
                )
            with self._lock:
                self._waiting -= sum(map(len, found))

    def _write(self, batch: Sequence[Finished]) -> None:
        known = [self._with_text(finished) for finished in batch]
        kept = [finished for finished in known if not finished.has_key]
        has_text = self._collecting.has_text
        lines = [finished.line(self._target, has_text=has_text) for finished in kept]
        written = self._folder.append(lines) if lines else 0
        count_collected(KEY, len(known) - len(kept))
        count_collected(WRITTEN, written, sum(map(len, lines[:written])))
        if written < len(lines):
            count_collected(FULL, len(lines) - written)
            log_once(
                logging.WARNING,
                f"collecting has stopped: {self._collecting.folder} holds the "
                f"{self._collecting.max_bytes:,} bytes that {MAX_BYTES} allows; it goes on when "
                "files are removed",
            )
