"""What guides tell people to run: scripts and commands, word by word but for the models.

The guides are the pages on speculative decoding of vLLM in Chinese (in two versions), of
vllm-ascend, of ModelArts, and an article on vLLM's code. What each is for is said by its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.zoo import ZOO
from tests.zoo import ZOO_SPECS as SPECS
from tests.zoo import ZOO_TARGET as TARGET

# What stands in for the guides' models.
MODELS = {
    "facebook/opt-6.7b": TARGET,
    "facebook/opt-125m": str(ZOO / "draft"),
    "meta-llama/Meta-Llama-3.1-70B-Instruct": TARGET,
    "meta-llama/Meta-Llama-3.1-8B-Instruct": TARGET,
    "meta-llama/Meta-Llama-3-8B-Instruct": TARGET,
    "meta-llama/Llama-3.1-70B-Instruct": TARGET,
    "meta-llama/Llama-3.2-1B-Instruct": str(ZOO / "draft"),
    "ibm-fms/llama3-70b-accelerator": str(ZOO / "mlp_speculator"),
    "yuhuili/EAGLE-LLaMA3-Instruct-8B": str(ZOO / "eagle"),
    "yuhuili/EAGLE-LLaMA3.1-Instruct-8B": str(ZOO / "eagle"),
    "path/to/eagle-head": str(ZOO / "eagle"),
    "/path/to/base_model": TARGET,
    "/path/to/spec_model": str(ZOO / "draft"),
    "/deepseek-ai/DeepSeek-V3.2-Exp-W8A8": str(ZOO / "target-deepseek-w8a8"),
}
HEAD = """\
from vllm import LLM, SamplingParams

prompts = [
    "The future of AI is",
]
sampling_params = SamplingParams(temperature=0.8, top_p=0.95)

"""
TAIL = """
outputs = llm.generate(prompts, sampling_params)

for output in outputs:
    prompt = output.prompt
    generated_text = output.outputs[0].text
    print(f"Prompt: {prompt!r}, Generated text: {generated_text!r}")
"""
K = "num_speculative_tokens"


@dataclass(frozen=True)
class Script:
    """A guide's script.

    Attributes:
        call: the line that makes its engine.
        spec: what it asks for, in today's names.
        devices: that it splits its target over.
    """

    call: str
    spec: dict[str, Any]
    devices: int = 1

    @property
    def text(self) -> str:
        """The script, with the models of the zoo."""
        return HEAD + with_our_models(self.call) + TAIL


@dataclass(frozen=True)
class Command:
    """A guide's command that starts a server.

    Attributes:
        text: of it.
        spec: what it asks for, in today's names.
        port: that it listens on.
        name: that its model has for clients; None for its path.
    """

    text: str
    spec: dict[str, Any]
    port: int = 8000
    name: str | None = None

    @property
    def ours(self) -> str:
        """The command, with the models of the zoo."""
        return with_our_models(self.text)


def with_our_models(text: str) -> str:
    """Return a guide's text with the zoo's models in the place of its own."""
    for name in sorted(MODELS, key=len, reverse=True):
        text = text.replace(name, MODELS[name])
    return text


def draft(num: int, **more: Any) -> dict[str, Any]:
    """Return the config of a draft model."""
    return {**SPECS["draft_model"], K: num, **more}


SCRIPTS: dict[str, Script] = {
    "vllm-zh, draft model": Script(
        """llm = LLM(
    model="facebook/opt-6.7b",
    tensor_parallel_size=1,
    speculative_model="facebook/opt-125m",
    num_speculative_tokens=5,
    use_v2_block_manager=True,
)""",
        draft(5),
    ),
    "vllm-zh, ngram": Script(
        """llm = LLM(
    model="facebook/opt-6.7b",
    tensor_parallel_size=1,
    speculative_model="[ngram]",
    num_speculative_tokens=5,
    ngram_prompt_lookup_max=4,
    use_v2_block_manager=True,
)""",
        {"method": "ngram", K: 5, "prompt_lookup_max": 4, "prompt_lookup_min": 1},
    ),
    "vllm-zh, MLP speculator": Script(
        """llm = LLM(
    model="meta-llama/Meta-Llama-3.1-70B-Instruct",
    tensor_parallel_size=4,
    speculative_model="ibm-fms/llama3-70b-accelerator",
    speculative_draft_tensor_parallel_size=1,
    use_v2_block_manager=True,
)""",
        # As many drafts as the checkpoint has heads.
        {**SPECS["mlp_speculator"], K: 3, "draft_tensor_parallel_size": 1},
        devices=4,
    ),
    "vllm-zh, EAGLE": Script(
        """llm = LLM(
    model="meta-llama/Meta-Llama-3-8B-Instruct",
    tensor_parallel_size=4,
    speculative_model="yuhuili/EAGLE-LLaMA3-Instruct-8B",
    speculative_draft_tensor_parallel_size=1,
)""",
        {**SPECS["eagle"], K: 5, "draft_tensor_parallel_size": 1},
        devices=4,
    ),
    "vllm-ascend, ngram": Script(
        """llm = LLM(
    model="meta-llama/Meta-Llama-3.1-8B-Instruct",
    tensor_parallel_size=1,
    speculative_config={
        "method": "ngram",
        "num_speculative_tokens": 5,
        "prompt_lookup_max": 4,
    },
)""",
        {"method": "ngram", K: 5, "prompt_lookup_max": 4},
    ),
    "vllm-ascend, EAGLE": Script(
        """llm = LLM(
    model="meta-llama/Meta-Llama-3.1-8B-Instruct",
    tensor_parallel_size=4,
    distributed_executor_backend="mp",
    enforce_eager=True,
    async_scheduling=True,
    speculative_config={
        "method": "eagle",
        "model": "yuhuili/EAGLE-LLaMA3.1-Instruct-8B",
        "draft_tensor_parallel_size": 1,
        "num_speculative_tokens": 2,
    },
)""",
        {**SPECS["eagle"], K: 2, "draft_tensor_parallel_size": 1},
        devices=4,
    ),
    "vllm-ascend, suffix": Script(
        """llm = LLM(
    model="meta-llama/Meta-Llama-3.1-8B-Instruct",
    tensor_parallel_size=1,
    enforce_eager=True,
    speculative_config={
        "method": "suffix",
        "num_speculative_tokens": 15,
    },
)""",
        {"method": "suffix", K: 15},
    ),
    "article, draft model": Script(
        """llm = LLM(
    model="meta-llama/Llama-3.1-70B-Instruct",
    speculative_model="meta-llama/Llama-3.2-1B-Instruct",
    num_speculative_tokens=5,
)""",
        draft(5),
    ),
    "article, EAGLE": Script(
        """llm = LLM(
    model="meta-llama/Llama-3.1-70B-Instruct",
    speculative_model="path/to/eagle-head",
    speculative_method="eagle",
    num_speculative_tokens=5,
)""",
        {**SPECS["eagle"], K: 5},
    ),
    "ModelArts, parameters of a script": Script(
        """llm = LLM(
    model="/path/to/base_model",
    speculative_model="/path/to/spec_model",
    num_speculative_tokens=3,
    speculative_draft_tensor_parallel_size=1,
    speculative_disable_by_batch_size=4,
)""",
        draft(3, draft_tensor_parallel_size=1, disable_by_batch_size=4),
    ),
}

# The comments behind the backslashes are the guide's. No shell takes them, `migrate` does.
MODELARTS = """\
base_model=/path/to/base_model
spec_model=/path/to/spec_model
spec_step=3
spec_parallel=1
python -m vllm.entrypoints.openai.api_server \\
--model=${base_model} \\   # 大模型权重地址
--speculative-model=${spec_model} \\   # 投机小模型权重地址
--num-speculative-tokens=${spec_step} \\ #投机步数
--speculative-draft-tensor-parallel-size=${spec_parallel} \\ #投机小模型使用的卡数,通常设置为1
--tensor-parallel-size=1 \\
--host 0.0.0.0 \\
--port 9999 \\
--dtype auto \\
--gpu-memory-utilization=0.9 \\
--served-model-name test_server_demo \\
--trust-remote-code
"""
COMMANDS: dict[str, Command] = {
    "vllm-zh, api_server": Command(
        "python -m vllm.entrypoints.openai.api_server --host 0.0.0.0 --port 8000 "
        "--model facebook/opt-6.7b \\\n--seed 42 -tp 1 --speculative_model facebook/opt-125m "
        "--use-v2-block-manager \\\n--num_speculative_tokens 5 --gpu_memory_utilization 0.8",
        draft(5),
    ),
    "article, draft model": Command(
        "vllm serve meta-llama/Llama-3.1-70B-Instruct \\\n"
        "--speculative-model meta-llama/Llama-3.2-1B-Instruct \\\n--num-speculative-tokens 5",
        draft(5),
    ),
    "article, EAGLE": Command(
        "vllm serve meta-llama/Llama-3.1-70B-Instruct \\\n"
        "--speculative-model path/to/eagle-head \\\n--speculative-method eagle \\\n"
        "--num-speculative-tokens 5",
        {**SPECS["eagle"], K: 5},
    ),
    "ModelArts, api_server": Command(
        MODELARTS, draft(3, draft_tensor_parallel_size=1), port=9999, name="test_server_demo"
    ),
}
CURL = """\
curl http://0.0.0.0:9999/v1/chat/completions \
    -H "Content-Type: application/json" \
    -d '{
        "model": "test_server_demo",
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": "Who won the world series in 2020?"},
            {"role":"assistant","content":"The World Series in 2020 was won by the Los Angeles \
Dodgers. They defeated the Tampa Bay Rays in a six-game series, which was delayed and played in \
October and November due to the COVID-19 pandemic."},
            {"role": "user", "content": "Do you like NewYork?"}
        ],
        "max_tokens": 100,
        "top_k": -1,
        "top_p": 1,
        "temperature": 0,
        "ignore_eos": false,
        "stream": false
    }'
"""
# Layers of a model of 36.
EXTRACT = """\
import tempfile

from safetensors import safe_open
from vllm import LLM, SamplingParams


def main():
    with tempfile.TemporaryDirectory() as tmpdirname:
        llm = LLM(
            model="Qwen/Qwen3-8B",
            tensor_parallel_size=1,
            speculative_config={
                "method": "extract_hidden_states",
                "num_speculative_tokens": 1,
                "draft_model_config": {
                    "hf_config": {
                        # Layer indices to extract hidden states from
                        "eagle_aux_hidden_state_layer_ids": [2, 18, 34],
                    }
                },
            },
            kv_transfer_config={
                "kv_connector": "ExampleHiddenStatesConnector",
                "kv_role": "kv_producer",
                "kv_connector_extra_config": {
                    "shared_storage_path": tmpdirname,
                },
            },
        )

        prompts = ["Hello, how are you?", "What is machine learning?"]
        sampling_params = SamplingParams(max_tokens=1)
        outputs = llm.generate(prompts, sampling_params)

        for output in outputs:
            print("Prompt:", output.prompt)
            print("Prompt token ids:", output.prompt_token_ids)

            hidden_states_path = output.kv_transfer_params.get("hidden_states_path")
            print("Hidden states saved to:", hidden_states_path)

            with safe_open(hidden_states_path, "pt") as f:
                token_ids = f.get_tensor("token_ids")
                hidden_states = f.get_tensor("hidden_states")
                print("Shape:", hidden_states.shape)
                # Shape: (num_tokens, num_layers, hidden_size)


if __name__ == "__main__":
    main()
"""
# Of the guide's machine there are sixteen NPUs.
MTP_ON_NPUS = """\
vllm serve /deepseek-ai/DeepSeek-V3.2-Exp-W8A8 \\
--port 20004 \\
--data-parallel-size 1 \\
--tensor-parallel-size 16 \\
--enable-expert-parallel \\
--seed 1024 \\
--served-model-name dsv3 \\
--max-model-len 36768 \\
--max-num-batched-tokens 5000 \\
--max-num-seqs 10 \\
--quantization ascend \\
--trust-remote-code \\
--gpu-memory-utilization 0.9 \\
--compilation-config '{"cudagraph_mode": "FULL_DECODE_ONLY"}' \\
--speculative-config '{"num_speculative_tokens": 2, "method":"deepseek_mtp", "disable_padded_drafter_batch": "False"}'
"""  # noqa: E501


def deep_target(folder: Path) -> str:
    """Write a model of 36 layers with random weights and the zoo's tokenizer."""
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(TARGET)
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=36,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=256,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
