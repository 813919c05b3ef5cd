"""Everything that we override, call, read and replace of vLLM and vllm-ascend still exists.

Their installed sources are read, not imported, so vllm-ascend's need neither torch_npu nor CANN.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path

import pytest

from tests.upstream.sources import Sources
from tests.upstream.surface import Surface, Use

OURS = "vllm_ascend_spec"
# Package -> fewest uses of a kind that have to be found; with fewer, the search is what is broken.
FEWEST = {
    "vllm": {"imports": 60, "calls": 40, "uses": 200, "replaces": 4, "overrides": 12},
    "vllm_ascend": {"imports": 12, "calls": 10, "uses": 30, "replaces": 2, "overrides": 8},
}


def installed(package: str) -> Path | None:
    """Return a package's folder."""
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    return Path(next(iter(folders))) if folders else None


ROOTS = {name: folder for name in (OURS, *FEWEST) if (folder := installed(name))}


def uses_of(package: str, texts: dict[str, str] | None = None) -> list[Use]:
    if package not in ROOTS:
        pytest.skip(f"{package} is not installed; make test-npu-sim has a place where it is")
    sources = Sources(ROOTS, texts, ours=OURS)
    return [use for use in Surface(sources, OURS).uses() if use.package == package]


@pytest.mark.parametrize("package", FEWEST)
def test_what_we_rely_on_is_there(package: str) -> None:
    uses = uses_of(package)
    assert not [str(use) for use in uses if use.problem]
    kinds = Counter(next(kind for kind in FEWEST[package] if kind in use.what) for use in uses)
    for kind, fewest in FEWEST[package].items():
        assert kinds[kind] >= fewest, kind


@pytest.mark.parametrize(
    ("module", "line", "instead", "words"),
    [
        (
            "vllm.v1.spec_decode.ngram_proposer",
            "def batch_propose(",
            "def propose_batch(",
            "SpecNgramProposer overrides batch_propose: they have no such method",
        ),
        (
            "vllm.v1.spec_decode.ngram_proposer",
            "        k: int,\n    ) -> list[list[int]]:",
            "        k: int,\n        seeds: list,\n    ) -> list[list[int]]:",
            "overrides batch_propose: theirs takes seeds, ours does not",
        ),
        (
            "vllm.v1.spec_decode.ngram_proposer",
            "    min_ngram: int,\n",
            "    shortest: int,\n",
            "calls vllm.v1.spec_decode.ngram_proposer._find_longest",
        ),
        (
            "vllm.v1.worker.cpu_model_runner",
            "def _postprocess_triton(self)",
            "def _postprocess_kernels(self)",
            "overrides _postprocess_triton: they have no such method",
        ),
        (
            "vllm.v1.worker.cpu_worker",
            "CPUModelRunner",
            "RunnerOfTheCpu",
            "uses vllm.v1.worker.cpu_worker.CPUModelRunner: there is no such attribute",
        ),
        (
            "vllm.v1.worker.gpu_input_batch",
            "def swap_states(self, i1: int, i2: int)",
            "def swap_states(self, i1: int, i2: int, move: bool)",
            "replaces vllm.v1.worker.gpu_input_batch.InputBatch.swap_states: theirs takes move",
        ),
        (
            "vllm.v1.attention.backend",
            "    block_table_tensor: torch.Tensor",
            "    block_tables: torch.Tensor",
            "uses vllm.v1.attention.backend.CommonAttentionMetadata.block_table_tensor",
        ),
        (
            "vllm.v1.sample.rejection_sampler",
            "def _expand(",
            "def _repeat(",
            "uses vllm.v1.sample.rejection_sampler._expand: there is no such attribute",
        ),
    ],
)
def test_a_change_of_vllms_is_reported(module: str, line: str, instead: str, words: str) -> None:
    """Negative control: the installed source, changed in memory in one place."""
    text = Sources(ROOTS).module(module)
    assert text is not None
    source = text.path.read_text()
    assert line in source
    problems = [str(use) for use in uses_of("vllm", {module: source.replace(line, instead)})]
    assert any(words in problem and not problem.endswith(": fine") for problem in problems)


THEIRS = """
from dataclasses import dataclass

@dataclass
class Config:
    size: int
    name: str | None = None

class Base:
    def __init__(self, config, device):
        self.config: Config = config
        self.width = 3

    def step(self, tokens, positions=None):
        return self.helper(tokens, limit=1)

    def helper(self, tokens, *, limit):
        return tokens

    @classmethod
    def make(cls, config):
        return cls(config, None)

    @property
    def twice(self) -> Config:
        return self.config

def kernel(a, b=1):
    return a

TABLE = {}
"""
USER = """
from theirs.base import TABLE, Base, kernel
from theirs import base

class Mixin:
    width: int

    def step(self, tokens, positions=None):
        TABLE.clear()
        return super().step(tokens, positions) + self.width + kernel(tokens, b=2)

class Mine(Mixin, Base):
    def helper(self, tokens, *, limit):
        return self.twice.size

    @classmethod
    def make(cls, config):
        return cls(config, "cpu")

def patch(patches):
    def replacement(a, b=1):
        return b
    patches.set(base, "kernel", replacement)
    Base.make(base.Config(1))

def read(config: base.Config):
    other = config
    return other.name
"""


def problems(tmp_path: Path, theirs: str = THEIRS) -> list[str]:
    """Return what is wrong between a small package and another that builds on it."""
    for name, text in (("theirs/base.py", theirs), ("mine/user.py", USER)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.with_name("__init__.py").touch()
    sources = Sources({"theirs": tmp_path / "theirs", "mine": tmp_path / "mine"}, ours="mine")
    return [f"{use.what}: {use.problem}" for use in Surface(sources, "mine").uses() if use.problem]


def test_nothing_is_reported_where_nothing_changed(tmp_path: Path) -> None:
    assert problems(tmp_path) == []


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("class Base", "class Basis", "imports theirs.base.Base: there is no such name"),
        ("def kernel(a, b=1)", "def kern(a, b=1)", "imports theirs.base.kernel"),
        ("def kernel(a, b=1)", "def kernel(a, c=1)", "calls theirs.base.kernel: got an unexpected"),
        ("def kernel(a, b=1)", "def kernel(a, c, b=1)", "calls theirs.base.kernel: missing a"),
        ("def kernel(a, b=1)", "def kernel(a, b=1, c=2)", "replaces theirs.base.kernel"),
        ("TABLE = {}", "TABLES = {}", "imports theirs.base.TABLE"),
        ("def step(", "def run(", "calls super().step: they have no such method"),
        ("positions=None", "places=None", "Mine overrides step: theirs takes places"),
        ("positions=None", "*, positions=None", "calls super().step: too many positional"),
        ("tokens, positions=None", "positions, tokens", "overrides step: positions is at another"),
        ("def helper(", "def aid(", "Mine overrides helper: they have no such method"),
        ("*, limit", "*, limit, depth", "Mine overrides helper: theirs takes depth"),
        ("*, limit", "*, limit=2", "theirs has a default for limit, ours has none"),
        ("*, limit", "", "overrides helper: ours wants limit, theirs has none"),
        ("self.width", "self.breadth", "uses mine.user.Mine.width: there is no such attribute"),
        ("def twice", "def thrice", "uses mine.user.Mine.twice: there is no such attribute"),
        ("size: int", "length: int", "uses theirs.base.Config.size: there is no such"),
        ("name: str", "title: str", "uses theirs.base.Config.name: there is no such"),
        ("config, device)", "config)", "calls theirs.base.Base: too many positional"),
        ("config, device)", "config, device, rank)", "calls theirs.base.Base: missing a"),
        ("def make(cls, config)", "def make(cls)", "calls theirs.base.Base.make: too many"),
    ],
)
def test_every_kind_of_change_is_reported(
    before: str, after: str, words: str, tmp_path: Path
) -> None:
    assert before in THEIRS
    found = problems(tmp_path, THEIRS.replace(before, after))
    assert any(words in problem for problem in found), found
