"""The ``spec_page`` option: the server's page about drafts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.config.additional import section_of
from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.config.schema import SECTION
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.upstream.limits import NO_PAGE

NAME = "spec_page"
OPTION = f"additional_config.{SECTION}.{NAME}"


def wants_page(additional_config: Any) -> bool:
    """Tell whether ``--additional-config``, still unchecked, asks for the page."""
    section = section_of(additional_config)
    return isinstance(section, Mapping) and section.get(NAME) is True


def refuse_page(additional_config: Any) -> None:
    """Refuse the page in an engine without an HTTP server.

    Raises:
        ConfigError: it is asked for.
    """
    if wants_page(additional_config):
        problem = "has no effect here: the page needs an HTTP server (vllm serve)"
        raise ConfigError(OPTION, True, problem)


def unseen(*, headless: bool, additional_config: Any) -> tuple[str, ...]:
    """Return a warning if only another process may show the page.

    Args:
        headless: whether this process serves no HTTP. All processes of a group get the same
            configuration, and the group's server has the page.
        additional_config: ``--additional-config``, still unchecked.
    """
    if not headless or not wants_page(additional_config):
        return ()
    return (f"{OPTION}=True has no effect with --headless: the page is that of the server's node.",)


def check_page(request: SpecInput) -> None:
    """Refuse a page that would have nothing to show.

    Raises:
        ConfigError: this version cannot serve it, or statistics are off.
    """
    if request.options.spec_page and NO_PAGE is not None:
        raise ConfigError(OPTION, True, f"not possible with {NO_PAGE}")
    if request.options.spec_page and not request.engine.log_stats:
        raise ConfigError(OPTION, True, "contradicts --disable-log-stats; give one of the two")
