"""A headless Chromium, driven by the protocol of its driver: https://www.w3.org/TR/webdriver2/."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from vllm_ascend_spec.bench.server import free_port

NAMES = ("chromium", "chromedriver")
MISSING = [name for name in NAMES if shutil.which(name) is None]
# A browser starts in seconds; on a machine that is busy with other tests in many.
PATIENCE_S = 120.0


def wait_for(is_so: Callable[[], Any], what: str) -> Any:
    """Return what ``is_so`` returns as soon as that is true."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if found := is_so():
            return found
        time.sleep(0.2)
    raise AssertionError(f"not within {PATIENCE_S:.0f} s: {what}")


class Browser:
    """One window, and a profile that is thrown away; use it as a context manager.

    Args:
        flags: more of Chromium's.
    """

    def __init__(self, *flags: str) -> None:
        self._flags = flags
        self._url = f"http://127.0.0.1:{free_port()}"
        self._session = ""
        self._driver: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Browser:
        port = self._url.rpartition(":")[2]
        self._driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for(self._is_ready, "the driver answers")
            # No user but root is there in many containers, and little shared memory.
            flags = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", *self._flags]
            options = {"args": flags, "binary": shutil.which("chromium")}
            wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
            self._session = self._send("/session", wanted)["sessionId"]
        except BaseException:
            self._driver.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._driver is not None
        try:
            self._send(f"/session/{self._session}", None, "DELETE")
        finally:
            self._driver.terminate()
            self._driver.wait(timeout=PATIENCE_S)

    def _is_ready(self) -> bool:
        try:
            return bool(self._send("/status", None, "GET")["ready"])
        except (urllib.error.URLError, OSError):
            return False

    def _send(self, path: str, body: Mapping[str, Any] | None, how: str = "POST") -> Any:
        request = urllib.request.Request(
            self._url + path,
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=how,
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)["value"]

    def _ask(self, what: str, **body: Any) -> Any:
        return self._send(f"/session/{self._session}/{what}", body)

    def size(self, width: int, height: int) -> None:
        """Make the page's own area so large, which a window narrower than 500 can have, too."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._ask("goog/cdp/execute", cmd="Emulation.setDeviceMetricsOverride", params=metrics)

    def prefer(self, scheme: str) -> None:
        """Prefer ``dark`` or ``light``."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._ask(
            "goog/cdp/execute", cmd="Emulation.setEmulatedMedia", params={"features": features}
        )

    def open(self, url: str) -> None:
        """Go to a page."""
        self._ask("url", url=url)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run JavaScript in the page, and return what it returns."""
        return self._ask("execute/sync", script=script, args=list(arguments))

    def text(self, selector: str = "body") -> str:
        """Return the text of an element that can be seen; empty where there is none."""
        script = (
            "const found = document.querySelector(arguments[0]);"
            "return found?.checkVisibility() ? found.innerText : ''"
        )
        return self.run(script, selector)

    def screenshot(self, path: Path) -> None:
        """Write what can be seen as a PNG."""
        shot = self._send(f"/session/{self._session}/screenshot", None, "GET")
        path.write_bytes(base64.b64decode(shot))
