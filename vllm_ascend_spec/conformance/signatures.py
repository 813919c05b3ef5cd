"""Check whether a call fits a signature, and whether one function can replace another."""

from __future__ import annotations

import ast
from inspect import Parameter, Signature

VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def misfit(call: ast.Call, takes: Signature) -> str:
    """Return why a call does not fit, or an empty string; ``*`` and ``**`` may pass anything."""
    starred = any(isinstance(argument, ast.Starred) for argument in call.args)
    keywords = {keyword.arg: None for keyword in call.keywords if keyword.arg}
    known = [] if starred else [None] * len(call.args)
    partial = starred or any(keyword.arg is None for keyword in call.keywords)
    try:
        (takes.bind_partial if partial else takes.bind)(*known, **keywords)
    except TypeError as error:
        return f"{error}; it takes {_names(takes)}"
    return ""


def incompatible(ours: Signature, theirs: Signature) -> str:
    """Return why ``ours`` cannot be called like ``theirs``, or an empty string."""
    mine = ours.parameters
    kinds = {parameter.kind for parameter in mine.values()}
    takes_any, takes_names = (kind in kinds for kind in VARIADIC)
    if takes_any and takes_names:
        return ""
    order = [name for name, p in mine.items() if p.kind not in VARIADIC]
    for place, (name, parameter) in enumerate(theirs.parameters.items()):
        if parameter.kind in VARIADIC:
            continue
        own = mine.get(name)
        if own is None or own.kind in VARIADIC:
            if not (takes_names and parameter.kind is Parameter.KEYWORD_ONLY):
                return f"theirs takes {name}, ours does not; theirs takes {_names(theirs)}"
            continue
        by_place = parameter.kind is not Parameter.KEYWORD_ONLY
        if by_place and not takes_any and order.index(name) != place:
            return f"{name} is at another place; theirs takes {_names(theirs)}"
        if parameter.default is not Parameter.empty and own.default is Parameter.empty:
            return f"theirs has a default for {name}, ours has none"
    accepted = {name for name, p in theirs.parameters.items() if p.kind not in VARIADIC}
    open_ended = any(p.kind in VARIADIC for p in theirs.parameters.values())
    for name in order:
        if name not in accepted and mine[name].default is Parameter.empty and not open_ended:
            return f"ours wants {name}, theirs has none; theirs takes {_names(theirs)}"
    return ""


def _names(takes: Signature) -> str:
    return str(Signature([p.replace(default=Parameter.empty) for p in takes.parameters.values()]))
