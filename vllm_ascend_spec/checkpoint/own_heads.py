"""Checkpoints of heads over the target's last hidden state, which this package loads itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from vllm_ascend_spec.checkpoint.draft import Draft
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, blame, printable, short_value
from vllm_ascend_spec.checkpoint.heads import kind_of
from vllm_ascend_spec.checkpoint.safetensors import Tensor
from vllm_ascend_spec.checkpoint.tensors import Table, check_tensors

Config = Mapping[str, Any]


class Sizes(Protocol):
    """The settings in ``config.json`` that decide the tensors of some heads."""

    @property
    def num_drafts(self) -> int:
        """Maximum number of drafts in a step."""

    def rename(self, name: str) -> str:
        """Return our name of a tensor; tied tensors share one name."""

    def table(self, tensors: Mapping[str, Tensor]) -> Table:
        """Return the required tensors by our names, except those that :meth:`check_rest` takes.

        Args:
            tensors: the tensors that are there, by our names.
        """

    def check_rest(self, tensors: dict[str, Tensor]) -> None:
        """Check the tensors that are not weights, and remove them from ``tensors``.

        Raises:
            InvalidCheckpointError: one cannot be used.
        """


S = TypeVar("S", bound=Sizes)
# Takes the draft's config, the target's config (None if it is not here), the draft's tensors.
SizesOf = Callable[[Config, "Config | None", Mapping[str, Tensor]], S]


@dataclass(frozen=True)
class HeadsCheckpoint(Generic[S]):
    """The content of a folder that has passed every check.

    Attributes:
        sizes: sizes from its config.
        places: for each of our names, the names of its tensors in the files and where they are.
            Several tensors of one name hold the same numbers.
    """

    sizes: S
    places: Mapping[str, list[tuple[str, Tensor]]]


def read_heads(draft: Draft, sizes_of: SizesOf[S], *same: str) -> HeadsCheckpoint[S]:
    """Read config and headers of a draft and check them.

    Args:
        draft: the draft that was asked for.
        sizes_of: returns the sizes of the method's heads.
        same: entries of the config that must equal the target's.

    Raises:
        CheckpointError: it cannot be used.
    """
    found, target = draft.read(*same), draft.target_text()
    with blame(draft.option, draft.model):
        _require_heads(found.tensors)
        if found.quantized:
            raise InvalidCheckpointError("its weights are quantized; valid: BF16, F16, F32")
        sizes = sizes_of(found.config, target, found.tensors)
        places: dict[str, list[tuple[str, Tensor]]] = {}
        for name, tensor in found.tensors.items():
            places.setdefault(sizes.rename(name), []).append((name, tensor))
        for tied in places.values():
            _require_one_shape(tied)
        tensors = {name: tied[0][1] for name, tied in places.items()}
        sizes.check_rest(tensors)
        check_tensors(tensors, sizes.table(tensors), quantized=False)
    return HeadsCheckpoint(sizes, places)


def _require_heads(tensors: Mapping[str, Tensor]) -> None:
    if (kind := kind_of(tensors)) is not None:
        raise InvalidCheckpointError(f"is another kind of head; use method {kind!r}")
    if any(name.startswith("model.layers.") for name in tensors):
        raise InvalidCheckpointError("is an ordinary model; use method 'draft_model'")


def _require_one_shape(tied: list[tuple[str, Tensor]]) -> None:
    first, tensor = tied[0]
    for name, other in tied[1:]:
        if other.shape != tensor.shape:
            raise InvalidCheckpointError(
                f"{printable(name)} is {short_value(list(other.shape))} and {printable(first)} is "
                f"{short_value(list(tensor.shape))}; config.json says that they are the same"
            )


def require_same(draft: str, ours: int, target: str, theirs: object) -> None:
    """Raise if a size of the draft is not the target's; an unknown size is not compared.

    Raises:
        InvalidCheckpointError: they differ.
    """
    if isinstance(theirs, int) and ours != theirs:
        raise InvalidCheckpointError(
            f"its {draft} is {short_value(ours)}, the target's {target} is {short_value(theirs)}; "
            "a draft has to be made for its target"
        )
