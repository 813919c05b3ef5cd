"""The noise of ``verify_seeded`` in PyTorch: a function of seed, position and token alone.

Every token of a vocabulary has a number E from the exponential distribution of rate 1, independent
of all others. The token with the least E / p is a sample of p, whatever p is (the Gumbel-max trick
in another form: -log E is a Gumbel number). So the draft and the target, which have different p but
the same noise, often sample the same token (Daliri, Musco and Suresh, 2408.07978).

Most tokens are so unlikely that their noise need not be known. To let backends leave it out, the
noise is made in two steps. In a block of 128 tokens the least E is drawn first. It has the rate
128, and each token is as likely to have it. The others exceed it by numbers of rate 1, since
exponential numbers have no memory. A block is left out if even its likeliest token would lose with
the least E.

Random bits come from Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3",
2011), which keeps no state: key and counter are seed, position and token.
"""

from __future__ import annotations

import torch

# Tokens in a block, and words of one call of the generator.
BLOCK, WORDS = 128, 4
# Calls for the tokens of a block; the call after them is for the least number of the block.
CALLS = BLOCK // WORDS
MASK = 0xFFFFFFFF
ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)

Words = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def philox(counter: Words, key: tuple[torch.Tensor, torch.Tensor]) -> Words:
    """Return four random words of 32 bits for each counter and key.

    Args:
        counter: four int64 tensors in [0, 2^32), of shapes that broadcast.
        key: two of them.
    """
    x, y, z, w = counter
    for turn in range(ROUNDS):
        left, right = ((k + turn * step) & MASK for k, step in zip(key, KEY_STEPS, strict=True))
        # Products wrap around at 2^64, which leaves all of their bits as they are.
        first, second = MULTIPLIERS[0] * x, MULTIPLIERS[1] * z
        high = ((second >> 32) & MASK, (first >> 32) & MASK)
        x, y, z, w = high[0] ^ y ^ left, second & MASK, high[1] ^ w ^ right, first & MASK
    return x, y, z, w


def exponential(words: torch.Tensor) -> torch.Tensor:
    """Return exponential numbers of rate 1, float64, from words of 32 bits."""
    return -torch.log1p((words.double() + 0.5) * -(2.0**-32))


def noise(
    seeds: torch.Tensor,  # [num_rows]
    positions: torch.Tensor,  # [num_rows]
    vocab_size: int,
) -> torch.Tensor:
    """Return the noise of each token, float64 [num_rows, vocab_size].

    Args:
        seeds: int64, any.
        positions: int64, of the token that is sampled.
        vocab_size: number of tokens.
    """
    num_blocks = -(-vocab_size // BLOCK)
    seeds, positions = seeds[:, None, None], positions[:, None, None]
    blocks = torch.arange(num_blocks, device=seeds.device)[None, :, None]
    calls = torch.arange(CALLS + 1, device=seeds.device)[None, None, :]
    counter = (calls, blocks, positions & MASK, (positions >> 32) & MASK)
    words = philox(counter, (seeds & MASK, (seeds >> 32) & MASK))
    # Word w of call c is for token 32 w + c of the block.
    tokens = torch.cat(
        [word[..., :CALLS].expand(*seeds.shape[:1], num_blocks, -1) for word in words], -1
    )
    least = exponential(words[0][..., CALLS]) / BLOCK
    has_least = torch.arange(BLOCK, device=seeds.device) == words[1][..., CALLS, None] % BLOCK
    beyond = exponential(tokens).masked_fill(has_least, 0.0)
    return (least[..., None] + beyond).flatten(1)[:, :vocab_size]
