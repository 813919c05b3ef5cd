"""Rows of a Hugging Face data set on disk, through the ``datasets`` library if it is installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vllm_ascend_spec.errors import ConfigError

# The library's name of a format by the ending of its files.
TABLES = {".parquet": "parquet", ".arrow": "arrow"}
# What ``save_to_disk`` writes beside the tables of a data set, and of one with several splits.
SAVED, SAVED_SPLITS = "state.json", "dataset_dict.json"
TRAIN = "train"


def is_saved_dataset(path: Path) -> bool:
    """Tell whether a folder was written by the library's ``save_to_disk``."""
    return (path / SAVED).is_file() or (path / SAVED_SPLITS).is_file()


def read_rows(option: str, path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a data set, each read when it is asked for.

    Args:
        option: option that named it.
        path: a folder by ``save_to_disk``, a folder of parquet or arrow files, or one such file.

    Raises:
        ConfigError: the library is not installed or cannot read it, or it is not clear which split
            is meant.
    """
    try:
        yield from _open(option, path)
    except ConfigError:
        raise
    except Exception as error:  # the library's own, pyarrow's and the system's
        raise ConfigError(option, str(path), f"cannot be read as a data set: {error}") from None


def _open(option: str, path: Path) -> Iterable[Mapping[str, Any]]:
    try:
        import datasets  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        problem = (
            "needs the datasets library, which is not installed; valid: pip install datasets, or "
            "a file of JSON lines"
        )
        raise ConfigError(option, str(path), problem) from None
    if is_saved_dataset(path):
        return _one_split(option, path, datasets.load_from_disk(str(path)))
    kind, files = _tables(option, path)
    return datasets.load_dataset(kind, data_files=files, split=TRAIN, streaming=True)


def _one_split(option: str, path: Path, found: Any) -> Iterable[Mapping[str, Any]]:
    if not isinstance(found, Mapping):
        return found
    if TRAIN not in found and len(found) != 1:
        problem = f"has several splits; valid: the folder of one of {', '.join(found)}"
        raise ConfigError(option, str(path), problem)
    return found[TRAIN] if TRAIN in found else next(iter(found.values()))


def _tables(option: str, path: Path) -> tuple[str, list[str]]:
    """Return the format and the files of a folder of tables, or of one file."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    files = [each for each in files if each.suffix in TABLES]
    kinds = sorted({TABLES[each.suffix] for each in files})
    if len(kinds) != 1:
        raise ConfigError(option, str(path), f"has files of several formats: {', '.join(kinds)}")
    names = {each.stem.split("-", 1)[0] for each in files}
    if TRAIN in names:  # as the hub lays it out: train-00000-of-00002.parquet
        files = [each for each in files if each.stem.split("-", 1)[0] == TRAIN]
    return kinds[0], [str(each) for each in files]
