"""Whether the engines that ``train`` starts would be refused, by the checks of ``check``."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from vllm_ascend_spec.cli.train_head import FROM
from vllm_ascend_spec.config.additional import check_additional
from vllm_ascend_spec.config.schema import SpecOptions
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks.preflight import resolve_args
from vllm_ascend_spec.training.contenders import CONTENDERS, HEAD, SUFFIX, names_for
from vllm_ascend_spec.training.engine import target_arguments
from vllm_ascend_spec.training.measure import own_arguments
from vllm_ascend_spec.training.phases.answers import speculation
from vllm_ascend_spec.training.phases.states import engine_arguments
from vllm_ascend_spec.training.settings import Settings
from vllm_ascend_spec.training.shard_layout import Layout
from vllm_ascend_spec.training.speculation import ADDITIONAL

DEVICES = "--nproc-per-node"


def check_engines(settings: Settings, layout: Layout) -> None:
    """Refuse what the engine of a phase would refuse, as far as that shows without loading it.

    Args:
        settings: what was asked for.
        layout: of the states.

    Raises:
        ConfigError: naming the option.
    """
    SpecOptions.from_mapping(check_additional(settings.engine.get(ADDITIONAL) or {}))
    for own in _engines(settings, layout):
        asked = {"load_format": "auto", ADDITIONAL: {}, **target_arguments(settings), **own}
        try:
            resolve_args(Namespace(**asked))
        except ConfigError as error:
            if error.value == str(settings.begin_with):
                raise ConfigError(FROM, str(settings.begin_with), error.problem) from None
            raise


def _engines(settings: Settings, layout: Layout) -> Iterator[dict[str, Any]]:
    """Yield what the engines are given beside the target's arguments."""
    yield {"speculative_config": speculation(settings)}
    yield engine_arguments(layout, settings.output)
    for name in names_for(settings):
        # The head is not there yet, and suffix is left out where its library is missing.
        if name not in (HEAD, SUFFIX):
            yield own_arguments(settings, CONTENDERS[name].spec(settings))


def check_devices(count: int) -> None:
    """Refuse more processes to train than there are devices.

    Raises:
        ConfigError: naming how many there are.
    """
    if count == 1:
        return
    import torch

    is_cpu = not torch.accelerator.is_available()
    most = (os.cpu_count() or 1) if is_cpu else torch.accelerator.device_count()
    if count > most:
        raise ConfigError(DEVICES, count, f"valid: 1 to {most}, as many as there are here")
