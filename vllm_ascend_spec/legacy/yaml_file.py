"""Rewrite YAML files with old options, such as those of Kubernetes and Compose.

A command there is a list of words (``args:``), or one text. The text is edited, not generated from
the parsed file, so that comments, order and everything else stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.legacy.options import NEW, Replacement, replacement
from vllm_ascend_spec.legacy.rewrite import Edit, Rewritten, apply, has_old, rewrite
from vllm_ascend_spec.legacy.shell import Word

if TYPE_CHECKING:
    from yaml import ScalarNode, SequenceNode

# Start of a variable that Kubernetes or Compose expands.
PUT_IN = ("$(", "${")
# Styles of block texts: the first keeps lines apart, the second joins them.
LITERAL, FOLDED = "|", ">"


def rewrite_yaml(text: str, name: str) -> Rewritten:
    """Rewrite a YAML file.

    Args:
        text: text of the file.
        name: name of the file, for messages.

    Raises:
        ConfigError: it is not YAML, or its old options contradict each other or say too little.
    """
    import yaml

    result, edits = Rewritten(text), list[Edit]()
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        problem = f"is not YAML{where}; templates have to be filled in first"
        raise ConfigError("FILE", name, problem) from None
    for node in _nodes(documents):
        edits += _of_list(text, node, result) if node.id == "sequence" else _of_text(node, result)
    result.text = apply(text, edits)
    return result


def _nodes(documents: list[Any]) -> Iterator[Any]:
    """Yield lists and single texts, each once, even if aliases refer to it again."""
    import yaml

    waiting, seen = [node for node in documents if node is not None], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            waiting += [value for _, value in node.value]
            continue
        yield node
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value


def _of_list(text: str, node: SequenceNode, result: Rewritten) -> list[Edit]:
    """Return edits of a list, if it is a command's words."""
    items = node.value
    words = [
        Word(item.value, item.start_mark.index, item.end_mark.index, _is_live(item.value))
        if item.id == "scalar"
        # A placeholder, which is no option.
        else Word("", item.start_mark.index, item.end_mark.index)
        for item in items
    ]
    found = replacement(words, {})
    if found is None:
        return []
    result.count += 1
    result.notes += found.notes
    kept = _anchor_edits(words, found)
    gone = {place for one in found.found for place in range(one.first, one.last + 1)}
    gone -= kept.keys()
    remove = _remove_in_line if node.flow_style else _remove_lines
    return [*kept.values(), *(remove(text, words, place) for place in sorted(gone))]


def _is_live(text: str) -> bool:
    return any(mark in text for mark in PUT_IN)


def _anchor_edits(words: list[Word], found: Replacement) -> dict[int, Edit]:
    """Return the edits of the items that stay, by their indices."""
    anchor = found.anchor
    if anchor is None:
        return {}
    flag, value = words[anchor.first], words[anchor.last]
    if anchor.first == anchor.last:
        return {anchor.first: Edit(flag.start, flag.end, _single(f"{NEW}={found.json}"))}
    return {
        anchor.first: Edit(flag.start, flag.end, NEW),
        anchor.last: Edit(value.start, value.end, _single(str(found.json))),
    }


def _single(text: str) -> str:
    """Return a text in YAML's single quotes."""
    return "'" + text.replace("'", "''") + "'"


def _remove_lines(text: str, words: list[Word], place: int) -> Edit:
    """Remove an item that has lines of its own."""
    word = words[place]
    start = text.rfind("\n", 0, word.start) + 1
    end = text.find("\n", max(word.start, word.end - 1))
    return Edit(start, len(text) if end < 0 else end + 1, "")


def _remove_in_line(text: str, words: list[Word], place: int) -> Edit:
    """Remove an item with the comma before it, or the first item with the comma after it."""
    word = words[place]
    if place:
        return Edit(words[place - 1].end, word.end, "")
    after = words[1].start if len(words) > 1 else word.end
    return Edit(word.start, after, "")


def _of_text(node: ScalarNode, result: Rewritten) -> list[Edit]:
    """Return edits of a text, if it has a command in it."""
    if not has_old(node.value) or not any(space in node.value for space in " \n"):
        return []
    start, end = node.start_mark.index, node.end_mark.index
    if node.style in (LITERAL, FOLDED):
        # Edit the raw text, so that its lines keep their indentation.
        whole = node.start_mark.buffer
        raw = str(whole)[start:end]
        head = raw.index("\n") + 1
        inner = rewrite(raw[head:], line_ends_command=node.style == LITERAL)
        new = raw[:head] + inner.text
    else:
        inner = rewrite(node.value, line_ends_command=False)
        new = json.dumps(inner.text, ensure_ascii=False)
    result.count += inner.count
    result.notes += inner.notes
    return [Edit(start, end, new)] if inner.count else []
