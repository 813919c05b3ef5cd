"""What the trainer logs: to a file, to lines of JSON, and to a line for who waits."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm_ascend_spec.training.atomic import append_line, cut_torn_line, write_whole
from vllm_ascend_spec.training.progress import duration

METRICS_LOGGER = "speculators.metrics"
# How often the first draft is right, as the library calls it for one head or another.
FIRST_RIGHT = ("full_acc_0", "position_0_acc", "position_1_acc")


@dataclass
class MetricsLog(logging.Handler):
    """Writes losses and accuracies, and shows them.

    Attributes:
        path: file that gets a JSON object per line.
        show: takes a line for who waits.
        steps: of the whole training.
        begin: steps that earlier starts did.
        clock: returns seconds.
    """

    path: Path
    show: Callable[[str], None]
    steps: int
    begin: int
    clock: Callable[[], float] = time.monotonic
    _started: float = field(init=False)

    def __post_init__(self) -> None:
        super().__init__()
        self._started = self.clock()

    def __hash__(self) -> int:
        return id(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Write and show a record of a step or of a measurement."""
        values = record.msg
        if not isinstance(values, dict):
            return
        if "train" in values:
            self._trained(values)
        elif "val" in values:
            self._measured(values["val"], getattr(record, "step", self.steps))

    def _trained(self, values: dict[str, Any]) -> None:
        # The library counts from 0 and logs before it counts.
        step, found = values["global_step"] + 1, values["train"]
        append_line(self.path, json.dumps({"step": step, "lr": values["lr"], "train": found}))
        each = (self.clock() - self._started) / max(1, step - self.begin)
        rate = (values.get("profile") or {}).get("tokens_per_s", 0.0)
        self.show(
            f"fit: step {step:,} of {self.steps:,}, loss {found['loss']:.3f}{_first_right(found)}, "
            f"{rate:,.0f} tokens/s, {duration(each * (self.steps - step))} left"
        )

    def _measured(self, found: dict[str, float], step: int) -> None:
        plain = {name.removesuffix("_epoch"): value for name, value in found.items()}
        append_line(self.path, json.dumps({"step": step, "watched": plain}))
        self.show(
            f"fit: after step {step:,}, on samples that are not trained on: loss "
            f"{plain['loss']:.3f}{_first_right(plain)}"
        )


def cut_metrics(path: Path, step: int) -> None:
    """Leave out what was logged after the step that a start goes on from."""
    if not path.exists():
        return
    cut_torn_line(path)
    kept = [line for line in path.read_text().splitlines() if json.loads(line)["step"] <= step]
    text = "".join(f"{line}\n" for line in kept)
    write_whole(path, lambda temporary: temporary.write_text(text))


def log_to_file(path: Path) -> None:
    """Send what the library and those below it log to a file, and warnings, too; draw no bars."""
    import datasets
    import loguru
    import transformers

    datasets.disable_progress_bars()
    transformers.logging.disable_progress_bar()
    transformers.logging.disable_default_handler()
    transformers.logging.enable_propagation()

    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    # The numbers are in the file of metrics.
    handler.addFilter(lambda record: record.name != METRICS_LOGGER)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    loguru.logger.remove()
    loguru.logger.add(path)


def _first_right(found: dict[str, float]) -> str:
    name = next((name for name in FIRST_RIGHT if name in found), None)
    return "" if name is None else f", first draft right {found[name]:.1%}"
