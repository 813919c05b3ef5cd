"""The class of method ``custom_class`` is looked at before anything is loaded."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import pytest

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks.preflight import resolve_engine
from vllm_ascend_spec.methods.custom_class import checks
from vllm_ascend_spec.methods.custom_class.class_probe import ARGUMENTS, KEYWORDS

SOURCE = '''
"""Proposers, right and wrong."""
from functools import partial

class Right:
    def __init__(self, vllm_config): ...
    def propose(self, sampled_token_ids, num_tokens_no_spec, token_ids_cpu, slot_mappings=None): ...

class Loose:
    def __init__(self, *args, **kwargs): ...
    def propose(self, *args, **kwargs): ...

class Static:
    def __init__(self, vllm_config): ...
    @staticmethod
    def propose(sampled, lengths, tokens, *, slot_mappings): ...

class OfTheClass(Right):
    @classmethod
    def propose(cls, sampled, lengths, tokens, slot_mappings=None): ...

def make(vllm_config):
    return Right(vllm_config)

class NoPropose:
    def __init__(self, vllm_config): ...

class Attribute(NoPropose):
    propose = 3

class NoSlots(NoPropose):
    def propose(self, sampled, lengths, tokens): ...

class TooFew(NoPropose):
    def propose(self, sampled, slot_mappings=None): ...

class TooMany(NoPropose):
    def propose(self, sampled, lengths, tokens, hidden_states, slot_mappings=None): ...

class NoArgument:
    def propose(self, *args, **kwargs): ...

class TwoArguments:
    def __init__(self, vllm_config, device): ...
    def propose(self, *args, **kwargs): ...

NUMBER = 3
'''
OPTION = "speculative_config.model"


@pytest.fixture(autouse=True)
def proposers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make modules of a person's, found by name."""
    (tmp_path / "my_proposers.py").write_text(SOURCE)
    (tmp_path / "my_broken_proposers.py").write_text("raise ZeroDivisionError('at\\nimport')\n")
    (tmp_path / "my_needy_proposers.py").write_text("import no_such_module_anywhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("my_proposers", "my_broken_proposers", "my_needy_proposers"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def check(model: Any, **options: Any) -> None:
    spec = {"method": "custom_class", "model": model, "num_speculative_tokens": 3, **options}
    resolve_engine("org/target", spec)


@pytest.mark.parametrize("name", ["Right", "Loose", "Static", "OfTheClass", "make"])
def test_what_vllm_can_call_passes(name: str) -> None:
    check(f"my_proposers.{name}")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("NoDot", "is not the path of a class"),
        ("examples/my_proposers", "is not the path of a class"),
        ("my_proposers:Right", "is not the path of a class"),
        ("my_proposers.", "is not the path of a class"),
        (3, "is not the path of a class"),
        ("no_such_module.Right", "cannot import no_such_module (ModuleNotFoundError"),
        ("my_proposers.sub.Right", "cannot import my_proposers.sub"),
        ("my_broken_proposers.Right", "(ZeroDivisionError: at import)"),
        ("my_needy_proposers.Right", "No module named 'no_such_module_anywhere'"),
        ("my_proposers.Left", "module my_proposers has no Left"),
        ("my_proposers.NUMBER", "is int, no class"),
        ("my_proposers.NoPropose", "has no method propose"),
        ("my_proposers.Attribute", "has no method propose"),
        ("my_proposers.NoSlots", "cannot be called as propose(sampled_token_ids, "),
        ("my_proposers.TooFew", "cannot be called as propose("),
        ("my_proposers.TooMany", "token_ids_cpu, slot_mappings=…)"),
        ("my_proposers.NoArgument", "cannot be made from the engine's VllmConfig alone"),
        ("my_proposers.TwoArguments", "cannot be made from the engine's VllmConfig alone"),
    ],
)
def test_anything_else_is_refused_in_one_line(model: Any, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check(model)
    error = raised.value
    assert (error.option, error.value) == (OPTION, model)
    assert words in error.problem
    assert "\n" not in str(error)


# What a module may do to the process that imports it, and what is then said.
HOSTILE = {
    "exits": ("import sys\nsys.exit(3)\n", "cannot import exits (SystemExit: 3)"),
    "ends": ("import os\nos._exit(3)\n", "ended the process with status 3"),
    "ends_well": ("import os\nos._exit(0)\n", "ended the process with status 0"),
    "kills": (
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
        "ended the process by signal SIGKILL",
    ),
    "hangs": ("import time\ntime.sleep(3600)\n", "did not end within 2 s"),
    "hangs_as_a_child": (
        "import subprocess, time\nsubprocess.Popen(['sleep', '3600'])\ntime.sleep(3600)\n",
        "did not end within 2 s",
    ),
    "recurses": ("def f(): f()\nf()\n", "cannot import recurses (RecursionError: "),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_module_does_not_take_the_check_with_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, words = HOSTILE[name]
    (tmp_path / f"{name}.py").write_text(source)
    if "hangs" in name:
        monkeypatch.setattr(checks, "TIME_LIMIT_S", 2.0)
    with pytest.raises(ConfigError) as raised:
        check(f"{name}.Right")
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    assert name not in sys.modules


def test_module_that_talks_and_goes_on_in_threads_passes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    talk = "import sys, threading, time\nprint('hello'); print('x', file=sys.stderr)\n"
    talk += "threading.Thread(target=time.sleep, args=(3600,)).start()\n"
    (tmp_path / "talks.py").write_text(talk + SOURCE)
    check("talks.Right")
    assert capfd.readouterr() == ("", "")


def test_module_is_imported_once_for_a_server_that_checks_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "counts.py").write_text(
        "from pathlib import Path\n"
        "with (Path(__file__).parent / 'count').open('a') as file:\n    file.write('x')\n" + SOURCE
    )
    check("counts.Right")
    check("counts.Right")
    assert (tmp_path / "count").read_text() == "x"
    assert "counts" not in sys.modules


def test_class_of_a_module_that_is_imported_is_looked_at_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = types.ModuleType("made_up")
    exec(SOURCE, vars(module))
    monkeypatch.setitem(sys.modules, "made_up", module)
    check("made_up.Right")
    with pytest.raises(ConfigError, match="has no method propose"):
        check("made_up.NoPropose")


@pytest.mark.parametrize("name", ["eval", "print", "len", "list", "object", "Ellipsis"])
def test_builtins_are_no_proposers(name: str) -> None:
    with pytest.raises(ConfigError):
        check(f"builtins.{name}")


def test_where_to_put_the_module_is_said() -> None:
    with pytest.raises(ConfigError, match="PYTHONPATH"):
        check("no_such_module.Right")


@pytest.mark.parametrize("key", ["prompt_lookup_max", "draft_tensor_parallel_size", "quantization"])
def test_options_of_other_methods_are_refused(key: str) -> None:
    with pytest.raises(ConfigError, match="has no effect with method 'custom_class'"):
        check("my_proposers.Right", **{key: 2})


def test_call_is_the_one_that_vllm_makes() -> None:
    """The names and the order that are checked stand in vLLM's runner."""
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    source = inspect.getsource(GPUModelRunner.propose_draft_token_ids)
    (call,) = (
        node
        for node in ast.walk(ast.parse(textwrap.dedent(source)))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "cast(Any, self.drafter).propose"
    )
    assert tuple(ast.unparse(arg).rpartition(".")[2] for arg in call.args) == ARGUMENTS
    assert tuple(keyword.arg for keyword in call.keywords) == KEYWORDS
