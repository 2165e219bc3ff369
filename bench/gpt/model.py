"""A small GPT in plain PyTorch: what a training step is made of around the loss, and nothing else."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Size:
    layers: int
    width: int
    heads: int
    context: int
    vocab: int
    batch: int


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.heads = size.heads
        self.attention_norm = nn.LayerNorm(size.width, bias=False)
        self.qkv = nn.Linear(size.width, 3 * size.width, bias=False)
        self.attention_out = nn.Linear(size.width, size.width, bias=False)
        self.mlp_norm = nn.LayerNorm(size.width, bias=False)
        self.mlp_in = nn.Linear(size.width, 4 * size.width, bias=False)
        self.mlp_out = nn.Linear(4 * size.width, size.width, bias=False)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp_out(F.gelu(self.mlp_in(self.mlp_norm(x))))

    def attention(self, x):
        batch, time, width = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.attention_out(mixed.transpose(1, 2).reshape(batch, time, width))


class GPT(nn.Module):
    """Tokens ``[batch, time]`` to logits ``[batch, time, vocab]``. The head shares the embedding's weights."""

    def __init__(self, size):
        super().__init__()
        self.embedding = nn.Embedding(size.vocab, size.width)
        self.position = nn.Embedding(size.context, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                into_residual = name.endswith(("attention_out.weight", "mlp_out.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * size.layers) ** 0.5 if into_residual else 0.02)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.embedding.weight)
