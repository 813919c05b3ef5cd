"""Everything that we override, call, read and replace of vLLM and vllm-ascend still exists.

Their installed sources are read, not imported, so vllm-ascend's need neither torch_npu nor CANN.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from vllm_ascend_spec.conformance import look
from vllm_ascend_spec.conformance.sources import Sources
from vllm_ascend_spec.conformance.surface import Surface, Use

# Package -> fewest uses of a kind that have to be found; with fewer, the search is what is broken.
FEWEST = {
    "vllm": {"imports": 60, "calls": 40, "uses": 200, "replaces": 4, "overrides": 12, "option": 30},
    "vllm_ascend": {"imports": 12, "calls": 10, "uses": 30, "replaces": 2, "overrides": 8},
}


ROOTS = {look.OURS: look.OUR_FOLDER, **look.installed_folders()}


def uses_of(
    package: str, texts: dict[str, str] | None = None, *, otherwise: bool = False
) -> list[Use]:
    if package not in ROOTS:
        pytest.skip(f"{package} is not installed; make test-npu-sim has a place where it is")
    found = look.uses(
        look.installed_folders(), look.installed_versions(), texts, otherwise=otherwise
    )
    return [use for use in found if use.package == package]


@pytest.mark.parametrize("package", FEWEST)
def test_what_we_rely_on_is_there(package: str) -> None:
    uses = uses_of(package)
    assert not [str(use) for use in uses if use.problem]
    kinds = Counter(next(kind for kind in FEWEST[package] if kind in use.what) for use in uses)
    for kind, fewest in FEWEST[package].items():
        assert kinds[kind] >= fewest, kind


def test_it_is_there_on_a_host_without_nvml_too() -> None:
    """vLLM's CUDA platform is one of two classes, by what the host has."""
    found = [uses_of("vllm", otherwise=otherwise) for otherwise in (False, True)]
    assert not [str(use) for use in found[1] if use.problem]
    overrides = "SpecCudaPlatform overrides check_and_update_config"
    assert [sum(use.what == overrides for use in uses) for uses in found] == [1, 1]


# Module of vLLM's, what stands there, what would stand there instead, and what is reported then.
CHANGES = [
    (
        "vllm.platforms.cuda",
        "def check_and_update_config(cls, vllm_config: VllmConfig)",
        "def check_and_update_config(cls, vllm_config: VllmConfig, rank: int)",
        "SpecCudaPlatform overrides check_and_update_config: theirs takes rank",
    ),
    (
        "vllm.v1.worker.gpu_worker",
        "def init_device(self)",
        "def init_device(self, rank)",
        "SpecGPUWorker overrides init_device: theirs takes rank",
    ),
    (
        "vllm.config.vllm",
        "def use_v2_model_runner(self)",
        "def model_runner_version(self)",
        "uses vllm.config.vllm.VllmConfig.use_v2_model_runner: there is no such attribute",
    ),
    (
        "vllm.v1.spec_decode.ngram_proposer",
        "def batch_propose(",
        "def propose_batch(",
        "NgramDrafter overrides batch_propose: they have no such method",
    ),
    (
        "vllm.v1.spec_decode.ngram_proposer",
        "    min_ngram: int,\n",
        "    shortest: int,\n",
        "calls vllm.v1.spec_decode.ngram_proposer._find_longest",
    ),
    (
        "vllm.v1.worker.gpu_model_runner",
        "def _bookkeeping_sync(",
        "def _keep_books(",
        "overrides _bookkeeping_sync: they have no such method",
    ),
    (
        "vllm.v1.worker.gpu_input_batch",
        "def swap_states(self, i1: int, i2: int)",
        "def swap_states(self, i1: int, i2: int, move: bool)",
        "replaces vllm.v1.worker.gpu_input_batch.InputBatch.swap_states: theirs takes move",
    ),
    (
        "vllm.v1.spec_decode.llm_base_proposer",
        "self.pass_hidden_states_to_model",
        "self.passes_hidden_states",
        "Joined_eagle_vllm.pass_hidden_states_to_model: there is no such attribute",
    ),
    (
        "vllm.v1.spec_decode.llm_base_proposer",
        "def set_inputs_first_pass(",
        "def set_first_inputs(",
        "Joined_eagle_vllm.set_inputs_first_pass: there is no such attribute",
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
]
# In a look of their own: of what has another name nothing else is found.
MORE_CHANGES = [
    (
        "vllm.v1.spec_decode.ngram_proposer",
        "        k: int,\n    ) -> list[list[int]]:",
        "        k: int,\n        seeds: list,\n    ) -> list[list[int]]:",
        "overrides batch_propose: theirs takes seeds, ours does not",
    ),
    (
        "vllm.v1.worker.gpu_model_runner",
        "class GPUModelRunner(",
        "class RunnerOfTheGpu(",
        "uses vllm.v1.worker.gpu_model_runner.GPUModelRunner: there is no such attribute",
    ),
    (
        "vllm.v1.worker.cpu_worker",
        "CPUModelRunner",
        "RunnerOfTheCpu",
        "uses vllm.v1.worker.cpu_worker.CPUModelRunner: there is no such attribute",
    ),
]


@cache
def problems_with(more: bool) -> list[str]:
    """Return what is reported of the installed sources, changed in memory."""
    texts: dict[str, str] = {}
    for module, line, instead, _ in MORE_CHANGES if more else CHANGES:
        found = Sources(ROOTS).module(module)
        assert found is not None
        before = texts.get(module) or found.path.read_text()
        assert line in before
        texts[module] = before.replace(line, instead)
    return [str(use) for use in uses_of("vllm", texts) if use.problem]


@pytest.mark.parametrize("change", [*CHANGES, *MORE_CHANGES], ids=lambda change: change[2].strip())
def test_a_change_of_vllms_is_reported(change: tuple[str, str, str, str]) -> None:
    """Negative control."""
    found = problems_with(more=change in MORE_CHANGES)
    assert any(change[3] in problem for problem in found)


@pytest.mark.parametrize(("otherwise", "chosen"), [(False, "with_a_fault"), (True, "without_one")])
def test_a_base_that_a_condition_chooses_is_looked_at(
    otherwise: bool, chosen: str, tmp_path: Path
) -> None:
    theirs = """
class First:
    def step(self, tokens, with_a_fault): ...
class Second:
    def step(self, tokens, without_one): ...
Base = First if has_a_fault() else Second
"""
    user = "from theirs.base import Base\nclass Mine(Base):\n    def step(self, tokens): ..."
    write(tmp_path, {"theirs/base.py": theirs, "mine/user.py": user})
    roots = {name: tmp_path / name for name in ("theirs", "mine")}
    uses = Surface(Sources(roots, ours="mine", otherwise=otherwise), "mine").uses()
    assert [f"theirs takes {chosen}" in use.problem for use in uses if use.problem] == [True]


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


def write(folder: Path, files: dict[str, str]) -> None:
    """Write the files of some packages."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.with_name("__init__.py").touch()


def problems(tmp_path: Path, theirs: str = THEIRS) -> list[str]:
    """Return what is wrong between a small package and another that builds on it."""
    write(tmp_path, {"theirs/base.py": theirs, "mine/user.py": USER})
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
