"""Which kinds of heads ``train`` trains, with what, and on which targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vllm_ascend_spec.checkpoint.config_json import read_config, text_of
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError
from vllm_ascend_spec.checkpoint.files import read_checkpoint

OPTION = "--method"
# How many of the target's layers a head reads unless it is asked for others.
NUM_LAYERS = 3


@dataclass(frozen=True)
class Recipe:
    """How long and how fast a head is trained, where nothing else is asked for.

    Attributes:
        steps: steps of the optimizer.
        learning_rate: the highest.
    """

    steps: int
    learning_rate: float


# With random weights, and of a head that is trained already.
SCRATCH, ADAPTED = Recipe(400, 2e-3), Recipe(200, 3e-4)


@dataclass(frozen=True)
class Method:
    """A kind of head that the speculators library trains and vLLM serves.

    Attributes:
        name: of the method here, and of the library's model.
        arguments: options of ``speculators train`` for a number of drafts per step.
        lowest_layer: the first layer whose output the head may read.
        num_layers: how many it reads, or None for any number.
        converter: the library's converter for heads in another form, or None if it has none.
    """

    name: str
    arguments: Callable[[int], tuple[str, ...]]
    lowest_layer: int
    num_layers: int | None
    converter: str | None


def recipe_of(begin_with: Path | None) -> Recipe:
    """Return how a head is trained that begins with another one, or with none."""
    return SCRATCH if begin_with is None else ADAPTED


METHODS: Mapping[str, Method] = {
    each.name: each
    for each in (
        Method(
            "eagle3",
            lambda drafts: ("--ttt-steps", str(drafts)),
            0,
            NUM_LAYERS,
            "eagle3",
        ),
        Method(
            "peagle",
            lambda drafts: ("--num-depths", str(drafts)),
            0,
            NUM_LAYERS,
            None,
        ),
        # These number the layers one lower in their own config: 0 would be layer -1.
        Method(
            "dflash",
            lambda drafts: ("--block-size", str(drafts + 1)),
            1,
            None,
            "dflash",
        ),
        Method(
            "dspark",
            lambda drafts: ("--block-size", str(drafts)),
            1,
            None,
            None,
        ),
    )
}
REFUSED: Mapping[str, str] = {
    "eagle": "speculators 0.9 does not train EAGLE-1 heads",
    "mtp": (
        "speculators 0.9 writes MTP layers in a form that vLLM 0.30 does not read beside a target"
    ),
    "dflash2": "this package's draft loops do not run its candidate selector",
}


def default_layers(method: str, num_hidden_layers: int) -> tuple[int, ...]:
    """Return whose outputs a head reads; i is the output of the first i layers.

    These are vLLM's own (``get_eagle3_default_aux_hidden_state_layers``) where a target has enough
    layers, else the last ones.
    """
    usual = (2, num_hidden_layers // 2, num_hidden_layers - 3)
    if usual[0] < usual[1] < usual[2]:
        return usual
    first = max(METHODS[method].lowest_layer, num_hidden_layers - NUM_LAYERS + 1)
    return tuple(range(first, num_hidden_layers + 1))


def check_layers(option: str, method: str, layers: tuple[int, ...], num_hidden_layers: int) -> None:
    """Refuse layers that a head of the method cannot read.

    Raises:
        ConfigError: naming the valid ones.
    """
    from vllm_ascend_spec.errors import ConfigError

    lowest = METHODS[method].lowest_layer
    count = METHODS[method].num_layers
    wrong = [layer for layer in layers if not lowest <= layer <= num_hidden_layers]
    if wrong or len(layers) != (count or len(layers)) or len(set(layers)) != len(layers):
        number = f"{count} " if count else ""
        raise ConfigError(
            option,
            ",".join(map(str, layers)),
            f"valid: {number}different ones from {lowest} to {num_hidden_layers} for {method}; i "
            "is the output of the first i layers",
        )


def problem(method: str, device: str, target: Path) -> str | None:
    """Return why a method cannot be trained for a target on a device, or None if it can.

    Args:
        method: as asked for.
        device: PyTorch's name, such as ``cpu``, ``cuda`` or ``npu``.
        target: folder of the target's checkpoint.
    """
    if method not in METHODS:
        why = f"{REFUSED[method]}; " if method in REFUSED else ""
        return f"{why}valid: {', '.join(METHODS)}"
    if device not in DEVICES:
        return f"cannot be trained on {device}; valid: {', '.join(DEVICES)}"
    return _problem_of_target(target)


def _problem_of_target(target: Path) -> str | None:
    try:
        config = text_of(read_config(target))
        names = read_checkpoint(target)
    except (InvalidCheckpointError, OSError) as error:
        return f"the target {target} cannot be read: {error}"
    depth = config.get("num_hidden_layers")
    if not isinstance(depth, int) or depth < NUM_LAYERS:
        return f"the target has {depth} layers; valid: {NUM_LAYERS} or more"
    if not any(name.endswith(EMBEDDINGS) for name in names):
        return (
            f"speculators finds no embeddings in {target}; valid: safetensors with a tensor "
            f"whose name ends in {' or '.join(EMBEDDINGS)}"
        )
    return None


DEVICES = ("cpu", "cuda", "npu")
# What speculators/utils/loading.py:load_model_layers looks for.
EMBEDDINGS = (
    "embed_tokens.weight",
    "tok_embeddings.weight",
    "llm.embed.weight",
    "backbone.embeddings.weight",
)
