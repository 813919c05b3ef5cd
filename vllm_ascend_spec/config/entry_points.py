"""Records of other packages, found by the entry points that those packages declare."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from typing import TypeVar

from vllm_ascend_spec.config.device import Device
from vllm_ascend_spec.config.method import Method
from vllm_ascend_spec.errors import ExtensionError

Record = TypeVar("Record", Method, Device)


def records_of(group: str, kind: type[Record], built_in: Iterable[Record]) -> dict[str, Record]:
    """Return the records of this package and of others, by name.

    Args:
        group: group of entry points, each of which names a record.
        kind: class of the records.
        built_in: records of this package.

    Returns:
        Ours first, then those of others in the order of their entry points' names.

    Raises:
        ExtensionError: an entry point cannot be imported, is not a record, or its name is taken.
    """
    records = {record.name: record for record in built_in}
    owners = dict.fromkeys(records, "vllm-ascend-spec")
    for entry in sorted(metadata.entry_points(group=group), key=lambda entry: entry.name):
        record = _load(entry, group, kind)
        owner = _owner_of(entry)
        if record.name in records:
            raise ExtensionError(
                f"{owner} brings {kind.__name__.lower()} {record.name!r} in the entry point group "
                f"{group}, which {owners[record.name]} has already; uninstall one of them, or "
                "rename it"
            )
        records[record.name] = record
        owners[record.name] = owner
    return records


def _load(entry: metadata.EntryPoint, group: str, kind: type[Record]) -> Record:
    where = f"Entry point {entry.name!r} of {_owner_of(entry)} (group {group}, {entry.value})"
    try:
        record = entry.load()
    except Exception as error:  # another package's module may raise anything
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise ExtensionError(f"{where} cannot be imported: {why}") from error
    if not isinstance(record, kind):
        raise ExtensionError(
            f"{where} is {type(record).__name__}; valid: a {kind.__module__}.{kind.__name__}"
        )
    return record


def _owner_of(entry: metadata.EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "a package without a name"
