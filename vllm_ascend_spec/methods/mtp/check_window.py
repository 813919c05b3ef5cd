"""Refuse a window of the draft's attention for Gemma 4's assistant."""

from __future__ import annotations

from vllm_ascend_spec.checkpoint.config_json import read_config
from vllm_ascend_spec.checkpoint.errors import blame
from vllm_ascend_spec.checkpoint.folder import find_folder
from vllm_ascend_spec.config.draft_options import MODEL
from vllm_ascend_spec.config.draft_window import asked_for, draft_window_of
from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.methods.mtp.checkpoint_assistant import is_assistant

NO_WINDOW = (
    "not possible with an assistant of Gemma 4, which attends to the target's keys and values in "
    "several groups of the KV cache; leave it out"
)


def check_window(request: SpecInput) -> None:
    """Refuse a window for an assistant, where its folder is on this machine.

    The window would shorten the lengths, but not each group's table of blocks. Then the assistant
    would attend to the beginning of a text instead of its end.

    Raises:
        ConfigError: naming the option and its value.
    """
    model = request.spec.get("model")
    if draft_window_of(request) is None or model is None:
        return
    folder = find_folder(MODEL, model, request.spec.get("revision"))
    if folder is None:  # the drafter checks it
        return
    with blame(MODEL, model):
        config = read_config(folder)
    if is_assistant(config):
        option, window = asked_for(request)
        raise ConfigError(option, window, NO_WINDOW)
