"""Who may see what of the page, on vLLM's own application without an engine behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient
from vllm.entrypoints.launchers import app as launcher
from vllm.plugins.endpoint_plugins.interface import (
    EndpointPlugin,
    init_endpoint_plugins_state,
)
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser

from tests.speculation import carry, make_speculation
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks import page_hook
from vllm_ascend_spec.page.data import FIGURES
from vllm_ascend_spec.page.routes import SpecPage
from vllm_ascend_spec.upstream.server import make_arg_parser

WANTED = {"ascend_spec": {"spec_page": True}}
KEY = "a-key-of-this-test"


@pytest.fixture(autouse=True)
def _hook() -> Iterator[None]:
    page_hook.revert()
    yield
    page_hook.revert()


def serve(additional: Any, *flags: str, tasks: tuple[str, ...] = ("generate",)) -> TestClient:
    """Return a client of vLLM's application, as it is built for these flags."""
    page_hook.prepare(additional, UsageContext.OPENAI_API_SERVER)
    parser = make_arg_parser(FlexibleArgumentParser())
    args = parser.parse_args(["--model", "some/target", *flags])
    args.additional_config = additional
    app = launcher.build_app(args, tasks)  # type: ignore[arg-type]
    config = SimpleNamespace(
        speculative_config=carry(make_speculation()), additional_config=additional
    )
    engine: Any = SimpleNamespace(vllm_config=config)
    asyncio.run(init_endpoint_plugins_state(engine, app.state, args))
    return TestClient(app)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_it_is_a_plugin_of_the_kind_that_vllm_has() -> None:
    assert isinstance(SpecPage(), EndpointPlugin)


@pytest.mark.parametrize("additional", [{}, {"ascend_spec": {"spec_page": False}}, {"other": 1}])
def test_nothing_is_there_unless_it_is_asked_for(additional: Any) -> None:
    # Also not in a process that has prepared one.
    page_hook.prepare(WANTED, UsageContext.OPENAI_API_SERVER)
    client = serve(additional)
    assert [client.get(path).status_code for path in ("/spec", "/spec/data")] == [404, 404]


def test_without_a_key_everybody_may_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    client = serve(WANTED)
    page = client.get("/spec")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    data = client.get("/spec/data")
    assert data.status_code == 200
    assert data.headers["cache-control"] == "no-store"
    told = data.json()
    assert told["model"] == "target", "a folder's name, not where it lies"
    assert told["speculation"]["max_k"] == 3
    assert told["figures"].keys() == FIGURES.keys()
    assert told["collecting"] is None


def test_it_says_that_prompts_are_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """But not where the folder is: that is in the log."""
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    asked = {"collect_folder": "/secret/place/prompts", "collect_rate": 0.25}
    answer = serve({"ascend_spec": {**WANTED["ascend_spec"], **asked}}).get("/spec/data")
    wanted = {"folder": "prompts", "rate": 0.25, "max_bytes": 10**9, "text": False}
    assert answer.json()["collecting"] == wanted
    assert "secret" not in answer.text


@pytest.mark.parametrize("given", ["flag", "variable"])
def test_with_a_key_the_data_are_for_those_who_have_it(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", KEY if given == "variable" else "another")
    client = serve(WANTED, *(("--api-key", KEY) if given == "flag" else ()))
    wrong = ({}, bearer("another"), bearer(""), {"Authorization": KEY}, bearer(KEY + "x"))
    for headers in wrong:
        answer = client.get("/spec/data", headers=headers)
        assert (answer.status_code, answer.json()) == (401, {"error": "Unauthorized"})
        assert answer.headers["www-authenticate"] == "Bearer"
    assert client.get("/spec/data", headers=bearer(KEY)).status_code == 200
    page = client.get("/spec")
    assert page.status_code == 200, "the file is the same for everybody; a browser sends no key"
    assert KEY not in page.text
    assert KEY not in client.get("/spec/data", headers=bearer(KEY)).text


def test_a_server_without_an_engine_has_none() -> None:
    assert serve(WANTED, tasks=("render",)).get("/spec").status_code == 404


@pytest.mark.parametrize("usage", ["LLM_CLASS", "OPENAI_BATCH_RUNNER"])
def test_a_page_that_nobody_could_see_is_refused(usage: str) -> None:
    with pytest.raises(ConfigError, match=r"ascend_spec\.spec_page=True: has no effect here"):
        page_hook.prepare(WANTED, UsageContext[usage])
    page_hook.prepare({}, UsageContext[usage])
