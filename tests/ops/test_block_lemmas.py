"""Every lemma of ``docs/block_rule.md`` in exact fractions, beside a variant that is false."""

from __future__ import annotations

import itertools
import random
import re
from functools import cache
from pathlib import Path

import pytest

from tests.ops.block_claims import CASES, MODELS
from tests.ops.block_exact import Case, Model, make_case, make_model

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "block_rule.md"
CITATION = re.compile(r"docs/block_rule\.md, lemmas? (\d+(?:(?:, | and )\d+)*)")


@cache
def cases() -> list[Case]:
    source = random.Random(10)
    return [make_case(source, certain=index % 3 == 0) for index in range(6000)]


@cache
def models() -> list[Model]:
    source = random.Random(11)
    return [
        make_model(source, size, n, certain=certain)
        for size, n, certain in itertools.product((2, 3), (1, 2, 3), (False, True))
        for _ in range(3)
    ]


@pytest.mark.parametrize("number", CASES)
def test_lemma(number: int) -> None:
    claim, wrong = CASES[number]
    assert [case for case in cases() if not claim(case)] == []
    assert not all(map(wrong, cases())), "the variant that is false was not found to be"


@pytest.mark.parametrize("number", MODELS)
def test_lemma_about_all_texts(number: int) -> None:
    claim, wrong = MODELS[number]
    assert all(map(claim, models()))
    assert not all(map(wrong, models())), "the variant that is false was not found to be"


def lemmas() -> list[int]:
    """Return the numbers of the page's lemmas, in its order."""
    return [int(x) for x in re.findall(r"^##+ Lemma (\d+)", PAGE.read_text(), re.MULTILINE)]


def sources_by_row() -> dict[str, tuple[list[Path], set[int]]]:
    """Return the page's table of users: the files of each row and the lemmas they may cite."""
    found = {}
    for line in PAGE.read_text().rpartition("## Who uses what")[2].splitlines():
        if not line.startswith("| `"):
            continue
        files, numbers = line.strip("| ").split(" | ")
        names = re.findall(r"`([^`]+)`", files)
        folder = Path(names[0]).parent
        paths = [ROOT / (name if "/" in name else folder / name) for name in names]
        found[names[0]] = (paths, {int(x) for x in re.findall(r"\d+", numbers)})
    return found


def cited(text: str) -> set[int]:
    """Return the lemmas that a source cites; a comment may break the citation anywhere."""
    plain = re.sub(r"\s*\n\s*(?://|#)?\s*", " ", text)
    return {int(x) for group in CITATION.findall(plain) for x in re.findall(r"\d+", group)}


def test_all_lemmas_are_checked() -> None:
    assert lemmas() == sorted({**CASES, **MODELS}) == list(range(1, len(lemmas()) + 1))


@pytest.mark.parametrize("backend", sources_by_row())
def test_backends_cite_the_lemmas_that_the_page_says(backend: str) -> None:
    files, numbers = sources_by_row()[backend]
    assert set().union(*(cited(path.read_text()) for path in files)) == numbers
    assert all(cited(path.read_text()) for path in files)


def test_nobody_else_cites_a_lemma_that_is_not_there() -> None:
    sources = [
        *(ROOT / "ops").rglob("*.cpp"),
        *(ROOT / "ops").rglob("*.h"),
        *(ROOT / "vllm_ascend_spec").rglob("*.py"),
    ]
    assert len(sources_by_row()) == 4
    assert set().union(*(cited(path.read_text()) for path in sources)) <= set(lemmas())


def test_citations_are_found_across_lines() -> None:
    assert cited("// x (docs/block_rule.md, lemma 3)\n") == {3}
    assert cited("# see docs/block_rule.md,\n# lemmas 1, 4 and 12.\n") == {1, 4, 12}
    assert cited("a lemma 5\n") == set()
