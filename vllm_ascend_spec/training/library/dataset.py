"""The samples' tokens in the form that the trainer reads: a folder of the datasets library."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training.atomic import TEMPORARY
from vllm_ascend_spec.training.shards import Sample, ShardReader

# The head's losses on these are watched while it trains; the checkpoint with the best is kept.
WATCHED_SHARE, MOST_WATCHED = 0.05, 512
ID, LENGTH = "id", "seq_len"


def write_dataset(folder: Path, reader: ShardReader) -> int:
    """Write the tokens of all samples that something can be learned from, unless they are there.

    Returns:
        How many samples there are.
    """
    import pyarrow as pa
    from datasets import Dataset, load_from_disk

    if folder.is_dir():
        return len(load_from_disk(folder))

    samples = list(_usable(reader))
    ids = pa.array([each.id for each in samples], pa.string())
    lengths = pa.array([len(each.token_ids) for each in samples], pa.int64())
    table = {
        ID: ids,
        LENGTH: lengths,
        "input_ids": _lists([each.token_ids for each in samples], pa.int64()),
        "loss_mask": _lists([each.loss_mask for each in samples], pa.bool_()),
    }
    temporary = folder.with_name(folder.name + TEMPORARY)
    shutil.rmtree(temporary, ignore_errors=True)
    Dataset(pa.table(table)).with_format("torch").save_to_disk(temporary)
    temporary.replace(folder)
    return len(samples)


def train_share(num_samples: int, num_processes: int, option: str = "--prompts") -> float:
    """Return the share of the samples that are trained on; each process has one of the others.

    Args:
        num_samples: samples in all.
        num_processes: that train together.
        option: option that the samples come from, for errors.

    Raises:
        ConfigError: there are too few.
    """
    watched = max(num_processes, min(round(num_samples * WATCHED_SHARE), MOST_WATCHED))
    if num_samples < watched + num_processes:
        raise ConfigError(
            option,
            num_samples,
            f"{num_samples} of them have answers to learn from; valid: {2 * num_processes} or more",
        )
    # The half keeps the library's rounding down from losing one.
    return (num_samples - watched + 0.5) / num_samples


def _usable(reader: ShardReader) -> Iterator[Sample]:
    """Yield what has a token to learn behind the first one; in the order of the ids."""
    for sample_id in reader.lengths:
        sample = reader.read(sample_id)
        if sample.loss_mask[1:].any():
            yield sample


def _lists(rows: list[Any], dtype: Any) -> Any:
    """Return an Arrow column of lists."""
    import numpy as np
    import pyarrow as pa

    offsets = np.cumsum([0, *map(len, rows)])
    values = np.concatenate([row.numpy() for row in rows]) if rows else np.array([])
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values, dtype))
