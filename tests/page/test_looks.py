"""What a browser shows of the page, with data that a test makes up: no server runs."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.page.browser import MISSING, Browser, wait_for
from vllm_ascend_spec.page.data import FIGURES, figures
from vllm_ascend_spec.page.routes import DATA, FILE, PATH

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

# By K: more tokens for more drafts, but a smaller part of what they might give.
TOKENS = {0: 1.0, 1: 1.76, 2: 2.44, 3: 2.91}
REQUESTS = 100
SPECULATION = {
    **{"method": "eagle", "max_k": 3, "rule": "token", "lossless": True, "device": "cpu"}
}


def shown() -> dict[str, Any]:
    """Return what a server would show."""
    by_k = [{"method": "eagle", "k": str(k), "value": 0.0} for k in TOKENS]
    found = {
        **figures([]),
        "tokens": 1000.0,
        "running": 3.0,
        "waiting": 1.0,
        "verified_requests": [{**row, "value": REQUESTS} for row in by_k],
        "verified_tokens": [{**row, "value": REQUESTS * TOKENS[int(row["k"])]} for row in by_k],
        "tree_paths": [
            {"method": "eagle", "path": path, "value": value}
            for path, value in (("chain", 66.0), ("beside", 9.0), ("unknown", 25.0))
        ],
        "tree_drafts": [{"method": "eagle", "value": 1500.0}],
        "tree_depth": [{"method": "eagle", "value": 500.0}],
        "tree_accepted": [{"method": "eagle", "value": 230.0}],
        "length_steps": [{"k": str(k), "reason": "pays", "value": 10.0} for k in TOKENS],
        "step_seconds": 10.0,
        "verification_seconds": 4.3,
        "drafting_seconds": 1.2,
    }
    assert found.keys() == FIGURES.keys()
    return found


class Answer(http.server.BaseHTTPRequestHandler):
    """Answers as a server's two routes do, a second later each time."""

    asked = 0

    def do_GET(self) -> None:
        body, kind = FILE.read_bytes(), "text/html; charset=utf-8"
        if self.path == DATA:
            Answer.asked += 1
            told = {"time": Answer.asked, "model": "m", "speculation": SPECULATION}
            body, kind = json.dumps({**told, "figures": shown()}).encode(), "application/json"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Browser("--lang=en-US") as found:
            found.size(1100, 1000)
            found.open(f"http://127.0.0.1:{server.server_port}{PATH}")
            wait_for(lambda: "Watchdog" in found.text("#watch"), "figures")
            yield found
        server.shutdown()


def sizes(browser: Browser, selector: str, side: str) -> list[float]:
    """Return one side of what a selector finds, in pixels."""
    script = (
        "return [...document.querySelectorAll(arguments[0])]"
        ".map(node => node.getBoundingClientRect()[arguments[1]])"
    )
    return browser.run(script, selector, side)


def test_longer_bars_are_more_tokens(browser: Browser) -> None:
    """A bar is its row's value on one scale, up to K + 1 of the largest K."""
    bars = sizes(browser, "#byK td.bar div", "width")
    (whole, *_) = sizes(browser, "#byK td.bar", "width")
    assert bars == sorted(bars)
    shares = [width / bars[-1] for width in bars]
    assert shares == pytest.approx([tokens / TOKENS[3] for tokens in TOKENS.values()], abs=0.02)
    assert bars[-1] < 0.8 * whole


def test_both_parts_of_a_step_are_named(browser: Browser) -> None:
    parts = browser.text("#share .figures").splitlines()
    assert [part.strip() for part in parts] == ["43 %", "verification", "12 %", "drafting"]
    parts = browser.text("#requests .figures").splitlines()
    assert [part.strip() for part in parts] == ["3", "running", "1", "waiting"]


def test_trees_are_shown_by_drafts_depth_and_path(browser: Browser) -> None:
    parts = [part.strip() for part in browser.text("#trees .figures").splitlines()]
    assert parts == [
        *("15", "drafts", "5.0", "depth", "2.30", "length of the accepted path"),
        *("12 %", "paths that leave the chain"),
    ]


def test_cards_of_a_row_are_equally_high(browser: Browser) -> None:
    tops = sizes(browser, "main > section:not([hidden]):not(#notice)", "top")
    heights = sizes(browser, "main > section:not([hidden]):not(#notice)", "height")
    rows: dict[float, set[float]] = {}
    for top, height in zip(tops, heights, strict=True):
        rows.setdefault(top, set()).add(round(height))
    assert len(rows) == 4
    assert all(len(found) == 1 for found in rows.values()), rows
