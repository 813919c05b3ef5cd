"""What is wrong with a speculative config, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.config.resolved import SpecConfig
from vllm_ascend_spec.errors import AscendSpecError

T = TypeVar("T")


class Problems(list[AscendSpecError]):
    """Everything that is wrong, in the order in which it is found; one problem for each option."""

    def run(self, check: Callable[..., T], *args: Any) -> T | None:
        """Run a check that raises what is wrong; return its result, or None if it raised."""
        try:
            return check(*args)
        except AscendSpecError as error:
            self.add(error)
            return None

    def add(self, problem: AscendSpecError) -> None:
        """Add a problem, unless its option has one."""
        if option_of(problem) not in map(option_of, self):
            self.append(problem)

    def has(self, option: str) -> bool:
        """Tell whether an option has a problem."""
        return option in map(option_of, self)


def option_of(problem: AscendSpecError) -> str:
    """Return the option that a problem is about, or its text if it is about none."""
    return getattr(problem, "option", str(problem))


@dataclass(frozen=True, kw_only=True)
class Examined:
    """What became of a speculative config.

    Attributes:
        problems: everything that is wrong; an engine raises the first.
        request: what was asked for; None without speculation, or if that cannot be read.
        speculation: the resolved record; None without speculation, or with problems.
    """

    problems: tuple[AscendSpecError, ...] = ()
    request: SpecInput | None = None
    speculation: SpecConfig | None = None

    def with_problems(self, problems: Iterable[AscendSpecError]) -> Examined:
        """Return a copy with these problems, which include its own."""
        found = tuple(problems)
        return replace(self, problems=found, speculation=None if found else self.speculation)

    def resolved(self) -> SpecConfig | None:
        """Return the speculation; None without one.

        Raises:
            AscendSpecError: the first problem.
        """
        if self.problems:
            raise self.problems[0]
        return self.speculation
