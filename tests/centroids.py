"""The zoo's assistant of Gemma 4 with centroids, as those of Gemma 4 E2B and E4B have them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from tests.zoo import ASSISTANT

CENTROIDS = 64


def write_with_centroids(folder: Path, chosen: int = CENTROIDS) -> Path:
    """Write the assistant with as many centroids of tokens, which stand in a shuffled order.

    Args:
        folder: to be written; does not exist.
        chosen: how many centroids a draft step looks at. With all of them it drafts as without.
    """
    shutil.copytree(ASSISTANT["model"], folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "use_ordered_embeddings": True,
        "num_centroids": CENTROIDS,
        "centroid_intermediate_top_k": chosen,
    }
    (folder / "config.json").write_text(json.dumps(config))
    weights = load_file(folder / "model.safetensors")
    embeddings = weights["model.embed_tokens.weight"]
    order = torch.randperm(len(embeddings), generator=torch.Generator().manual_seed(0))
    means = embeddings[order].float().view(CENTROIDS, -1, embeddings.shape[1]).mean(1)
    weights["masked_embedding.token_ordering"] = order
    weights["masked_embedding.centroids.weight"] = means.to(embeddings.dtype)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder
