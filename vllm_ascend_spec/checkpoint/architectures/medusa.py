"""Medusa's heads, as vLLM 0.30's ``medusa.py`` and FasterDecoding's own code save them."""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_ascend_spec.checkpoint import config_json
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, short_value
from vllm_ascend_spec.checkpoint.safetensors import Tensor
from vllm_ascend_spec.checkpoint.tensors import Shape, Shapes, Table

# "1.0.linear.weight": first residual layer of the second head; "1.1.weight": its output layer.
FASTER_DECODING = re.compile(r"(\d+)\.(\d+)\.(linear\.)?(weight|bias)")
# Names in both kinds of config; FasterDecoding's leaves out the target's sizes.
HEADS = ("num_heads", "medusa_num_heads")
LAYERS = ("num_hidden_layers", "medusa_num_layers")
OUTPUT, EVERY_OUTPUT, TOKEN_MAP = "lm_head.weight", "lm_heads.", "token_map"
ITEMS = {"I64": "q", "I32": "i"}


@dataclass(frozen=True)
class MedusaSizes:
    """What decides the tensors of Medusa's heads.

    Attributes:
        hidden: width of the target.
        vocab: size of the target's vocabulary.
        drafted: how many of its tokens can be drafted.
        num_drafts: how many heads there are.
        layers: number of residual layers in each head.
        shares_output: whether all heads have one output layer.
        bias: whether residual layers must have a bias; else they may.
        scale: factor of the logits.
        count: the config's entry for ``num_drafts``.
    """

    hidden: int
    vocab: int
    drafted: int
    num_drafts: int
    layers: int
    shares_output: bool
    bias: bool
    scale: float
    count: str

    def rename(self, name: str) -> str:
        """Return vLLM's name of a tensor; an output layer that all heads share has one name."""
        name = name.removeprefix("medusa_heads.")
        if match := FASTER_DECODING.fullmatch(name):
            head, layer, linear, kind = match.groups()
            residual = f"blocks.{head}.layers.{layer}.{kind}"
            name = residual if linear else f"{EVERY_OUTPUT}{head}.{kind}"
        is_output = name.startswith(EVERY_OUTPUT) and name.endswith(".weight")
        return OUTPUT if self.shares_output and is_output else name

    def check_rest(self, tensors: dict[str, Tensor]) -> None:
        """Check the table that maps the tokens that can be drafted to the target's."""
        table = tensors.get(TOKEN_MAP)
        if self.drafted == self.vocab:
            if table is not None:
                raise InvalidCheckpointError(
                    f"{TOKEN_MAP} in {table.path.name} is unexpected: truncated_vocab_size in "
                    "config.json is not below vocab_size"
                )
            return
        valid = f"valid: I64 or I32, [{self.drafted}], from truncated_vocab_size in config.json"
        if table is None:
            raise InvalidCheckpointError(f"has no tensor {TOKEN_MAP}; {valid}")
        if table.dtype not in ITEMS or table.shape != (self.drafted,):
            given = f"{table.dtype}, {short_value(list(table.shape))}"
            raise InvalidCheckpointError(f"{TOKEN_MAP} in {table.path.name} is {given}; {valid}")
        self._check_tokens(tensors.pop(TOKEN_MAP))

    def _check_tokens(self, table: Tensor) -> None:
        with table.path.open("rb") as file:
            file.seek(table.start)
            tokens = array(ITEMS[table.dtype], file.read(table.end - table.start))
        if not all(0 <= token < self.vocab for token in tokens) or len(set(tokens)) < len(tokens):
            raise InvalidCheckpointError(
                f"{TOKEN_MAP} in {table.path.name} has tokens outside the vocabulary of "
                f"{self.vocab}, or a token twice"
            )

    def table(self, tensors: Mapping[str, Tensor]) -> Table:
        """Return the tensors that have to be there."""
        square = Shape((self.hidden, self.hidden), "hidden_size")
        row = Shape((self.hidden,), "hidden_size")
        layer = {f"layers.{number}.weight": square for number in range(self.layers)}
        biases = {f"layers.{number}.bias": row for number in range(self.layers)}
        outputs = [f"{EVERY_OUTPUT}{head}.weight" for head in range(self.num_drafts)]
        given = {f"blocks.{head}.{bias}": row for head in range(self.num_drafts) for bias in biases}
        return Table(
            name="MedusaModel",
            outside=self._outputs([OUTPUT] if self.shares_output else outputs, tensors),
            stack="blocks.",
            layers=self.num_drafts,
            layer=lambda head: layer | biases if self.bias else layer,
            optional={} if self.bias else given,
            count=self.count,
        )

    def _outputs(self, names: list[str], tensors: Mapping[str, Tensor]) -> Shapes:
        """Return the output layers; each may have rows for tokens that cannot be drafted."""
        whole = Shape((self.vocab, self.hidden), "vocab_size and hidden_size")
        part = Shape((self.drafted, self.hidden), "truncated_vocab_size and hidden_size")
        rows = {name: tensors[name].shape[:1] for name in names if name in tensors}
        return {name: whole if rows.get(name) == (self.vocab,) else part for name in names}


def count_of(config: Mapping[str, Any]) -> int:
    """Return how many heads there are.

    Raises:
        InvalidCheckpointError: the config does not say.
    """
    return config_json.size(config, _key(HEADS, config))


def sizes_of(
    config: Mapping[str, Any], target: Mapping[str, Any] | None, tensors: Mapping[str, Tensor]
) -> MedusaSizes:
    """Read and check the sizes; those that the config leaves out are the target's.

    Raises:
        InvalidCheckpointError: one is missing, or of another type.
    """
    known = target or _sizes_by_tensors(tensors)
    vocab, hidden = (
        config_json.size(config, name, known.get(name, config_json.REQUIRED))
        for name in ("vocab_size", "hidden_size")
    )
    drafted = config_json.size(config, "truncated_vocab_size", vocab)
    if drafted > vocab:
        raise InvalidCheckpointError(
            f"config.json: truncated_vocab_size is {short_value(drafted)}; valid: up to "
            f"vocab_size, {short_value(vocab)}"
        )
    config_json.check_number(config, "logit_scale")
    return MedusaSizes(
        hidden=hidden,
        vocab=vocab,
        drafted=drafted,
        num_drafts=count_of(config),
        layers=config_json.size(config, _key(LAYERS, config), 1),
        shares_output=config_json.flag(config, "original_lm_head"),
        bias=config_json.flag(config, "medusa_fc_bias"),
        scale=float(config.get("logit_scale", 1.0)),
        count=_key(HEADS, config),
    )


def _key(names: tuple[str, str], config: Mapping[str, Any]) -> str:
    """Return which of two names of an entry the config uses."""
    return next((name for name in names if name in config), names[0])


def _sizes_by_tensors(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the sizes that FasterDecoding's config leaves out, if the target's are not known."""
    shapes = [tensor.shape for tensor in tensors.values() if len(tensor.shape) == 2]
    if not shapes:
        return {}
    return {"hidden_size": shapes[0][1], "vocab_size": max(rows for rows, _ in shapes)}
