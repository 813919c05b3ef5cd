"""A real Prometheus, as ``examples/grafana/prometheus.yml`` configures it, on free ports."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from tests.metrics.dashboard import FOLDER
from vllm_ascend_spec.bench.server import free_port

IS_MISSING = shutil.which("prometheus") is None
PATIENCE_S = 120.0


class Prometheus:
    """Scrapes one server, once a second; use it as a context manager.

    Args:
        port: of the server.
        folder: for its configuration and its data.
    """

    def __init__(self, port: int, folder: Path) -> None:
        config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
        config["global"]["scrape_interval"] = "1s"
        config["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{port}"]
        self._config = folder / "prometheus.yml"
        self._config.write_text(yaml.safe_dump(config))
        self._data = folder / "data"
        self._log = folder / "log"
        self.address = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Prometheus:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self._config}",
                    f"--storage.tsdb.path={self._data}",
                    f"--web.listen-address={self.address}",
                ],
                stdout=log,
                stderr=log,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(timeout=PATIENCE_S)

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of its API."""
        query = urllib.parse.urlencode(parameters)
        url = f"http://{self.address}/api/v1/{path}?{query}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def wait(self, expr: str) -> list[float]:
        """Return the values of a query as soon as it has some that are numbers."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            try:
                found = self.ask("query", query=expr)["result"]
            except urllib.error.HTTPError:
                raise
            except (urllib.error.URLError, OSError):
                found = []
            values = [float(sample["value"][1]) for sample in found]
            if numbers := [value for value in values if not math.isnan(value)]:
                return numbers
            assert self._process is not None
            assert self._process.poll() is None, self._log.read_text()[-2000:]
            time.sleep(0.5)
        raise AssertionError(f"no answer within {PATIENCE_S:.0f} s: {expr}")
