"""A tiny Llama, and vllm-ascend's engine on it; each command runs in a process of its own.

`engine.py make FOLDER` saves the model, what Hugging Face generates with it on the CPU, and an
EAGLE head of random numbers in FOLDER/head;
`engine.py run FOLDER OUTPUT OPTIONS` writes the engine's tokens as JSON. OPTIONS is JSON for `LLM`.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROMPTS = ([5, 17, 99, 301, 8, 44, 12], list(range(3, 60)), [7])
MAX_TOKENS = 12


def make(folder: Path) -> None:
    """Save a random model whose next token depends on all tokens before it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=1024,
        tie_word_embeddings=False, dtype="float32",
    )  # fmt: skip
    model = LlamaForCausalLM(config).float()
    for weight in model.parameters():
        if weight.dim() == 2:
            torch.nn.init.normal_(weight, std=0.15)
    model.save_pretrained(folder)
    expected = []
    for prompt in PROMPTS:
        tokens = model.generate(
            torch.tensor([prompt]), max_new_tokens=MAX_TOKENS, do_sample=False, eos_token_id=None,
            pad_token_id=0,
        )  # fmt: skip
        expected.append(tokens[0].tolist()[len(prompt) :])
    (folder / "expected.json").write_text(json.dumps(expected))
    make_head(config, folder / "head")


def make_head(config: Any, folder: Path) -> None:
    """Save an EAGLE head: one of the model's layers behind a projection of two hidden states."""
    import torch
    from safetensors.torch import save_file
    from transformers import LlamaForCausalLM

    config.num_hidden_layers = 1
    layer = LlamaForCausalLM(config).float().model.layers[0].state_dict()
    head = {f"layers.0.{name}": tensor for name, tensor in layer.items()}
    del head["layers.0.input_layernorm.weight"]
    head["fc.weight"] = torch.randn(config.hidden_size, 2 * config.hidden_size) * 0.1
    config.save_pretrained(folder)
    save_file(head, folder / "model.safetensors")


def run(folder: Path, output: Path, options: dict) -> None:
    """Generate greedily with vllm-ascend, and count."""
    from npu_sim import counters
    from vllm import LLM, SamplingParams
    from vllm.inputs import TokensPrompt

    llm = LLM(
        str(folder), skip_tokenizer_init=True, dtype="float32", max_model_len=128, max_num_seqs=4,
        max_num_batched_tokens=128, block_size=128, kv_cache_memory_bytes=8 << 20, **options,
    )  # fmt: skip
    before = counters.snapshot()
    answers = llm.generate(
        [TokensPrompt(prompt_token_ids=prompt) for prompt in PROMPTS],
        SamplingParams(max_tokens=MAX_TOKENS, temperature=0, ignore_eos=True, detokenize=False),
        use_tqdm=False,
    )
    counts = counters.snapshot() - before
    output.write_text(
        json.dumps(
            {
                "is_v2": llm.llm_engine.vllm_config.use_v2_model_runner,
                "tokens": [list(answer.outputs[0].token_ids) for answer in answers],
                "replays": counts.replays,
                "ops_replayed": counts.ops_replayed,
                "ops_launched": counts.ops_launched,
                "pauses": counts.events.get("graph:pauses", 0),
            }
        )
    )


def run_in_copy(log: Path, environment: dict[str, str], arguments: Sequence[Any]) -> None:
    """Do the same in a copy of a process that has imported vLLM; what it says goes to a file."""
    for standard in (1, 2):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), standard)
    os.environ.update(environment)
    assert "vllm" in sys.modules, "the process did not import it, and does not say why"
    run(*arguments)


if __name__ == "__main__":
    command, folder, *rest = sys.argv[1:]
    if command == "make":
        make(Path(folder))
    else:
        run(Path(folder), Path(rest[0]), json.loads(rest[1]))
