"""A plain Transformer in PyTorch, as a good engineer would write it for speed.

It is post-norm, its embeddings are shared, attention is PyTorch's fused one, and
`torch.compile` compiles model and loss. In bfloat16 all activations are in 16 bits.
"""

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional
from workload import LEARNING_RATE, PAD, Workload

from contestants import TrainingStep

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def uses_gpu() -> bool:
    """Returns whether PyTorch has a GPU."""
    return DEVICE == "cuda"


def training_step(work: Workload) -> TrainingStep:
    """Returns an update by PyTorch's fused Adam."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = Transformer(work).to(DEVICE)
    source, target = (torch.from_numpy(work.ids(i)).long().to(DEVICE) for i in (0, 1))
    return compiled_step(work, model, lambda: model(source, target))


def compiled_step(
    work: Workload, model: nn.Module, loss_of_model: Callable[[], torch.Tensor]
) -> TrainingStep:
    """Returns an update of a model's weights, compiled but for the optimizer."""
    hparams = work.hparams
    adam = torch.optim.Adam(
        model.parameters(),
        LEARNING_RATE,
        (hparams.adam_beta1, hparams.adam_beta2),
        hparams.adam_epsilon,
        fused=True,
    )
    compiled_loss = torch.compile(loss_of_model)
    dtype = getattr(torch, hparams.compute_dtype)
    loss = torch.zeros([])

    def run() -> None:
        nonlocal loss
        with torch.autocast(DEVICE, dtype, enabled=dtype != torch.float32):
            loss = compiled_loss()
        loss.backward()
        adam.step()
        adam.zero_grad(set_to_none=True)

    return TrainingStep(run, lambda: loss.item())


class Transformer(nn.Module):
    """Embeddings, both stacks and the loss."""

    def __init__(self, work: Workload) -> None:
        super().__init__()
        hparams = work.hparams
        d_model = hparams.d_model
        self.dtype = getattr(torch, hparams.compute_dtype)
        self.dropout = hparams.dropout
        self.label_smoothing = hparams.label_smoothing
        self.embedding = nn.Embedding(work.padded_vocab_size, d_model)  # [V, D]
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        self.register_buffer("positions", sinusoids(work.length, d_model))
        self.encoder = nn.ModuleList(
            EncoderLayer(work) for _ in range(hparams.num_layers)
        )
        self.decoder = nn.ModuleList(
            DecoderLayer(work) for _ in range(hparams.num_layers)
        )

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Returns the mean loss, given ids [B, S] and [B, T]."""
        is_token = (source != PAD)[:, None, None, :]  # [B, 1, 1, S]
        x = self.embed(source)  # [B, S, D]
        for layer in self.encoder:
            x = layer(x, is_token)
        y = self.embed(functional.pad(target, (1, 0))[:, :-1])  # [B, T, D]
        for layer in self.decoder:
            y = layer(y, x, is_token)
        logits = functional.linear(y, self.embedding.weight)  # [B, T, V]
        return functional.cross_entropy(
            logits.flatten(0, 1).float(),
            target.flatten(),
            ignore_index=PAD,
            label_smoothing=self.label_smoothing,
        )

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Returns embeddings with positions [B, T, D], given ids [B, T]."""
        embeddings = self.embedding(ids) * self.positions.shape[1] ** 0.5
        summed = embeddings + self.positions[: ids.shape[1]]
        return functional.dropout(summed, self.dropout).to(self.dtype)


class EncoderLayer(nn.Module):
    """Self-attention and the feed-forward network."""

    def __init__(self, work: Workload) -> None:
        super().__init__()
        self.attention = SelfAttention(work)
        self.attention_residual = Residual(work)
        self.feed_forward = feed_forward(work)
        self.feed_forward_residual = Residual(work)

    def forward(self, x: torch.Tensor, is_token: torch.Tensor) -> torch.Tensor:
        """Maps [B, S, D] to [B, S, D]."""
        x = self.attention_residual(x, self.attention(x, is_token))
        return self.feed_forward_residual(x, self.feed_forward(x))


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention and the feed-forward network."""

    def __init__(self, work: Workload) -> None:
        super().__init__()
        self.attention = SelfAttention(work)
        self.attention_residual = Residual(work)
        self.cross_attention = CrossAttention(work)
        self.cross_attention_residual = Residual(work)
        self.feed_forward = feed_forward(work)
        self.feed_forward_residual = Residual(work)

    def forward(
        self, y: torch.Tensor, encoder_output: torch.Tensor, is_token: torch.Tensor
    ) -> torch.Tensor:
        """Maps [B, T, D] to [B, T, D]."""
        y = self.attention_residual(y, self.attention(y))
        attended = self.cross_attention(y, encoder_output, is_token)
        y = self.cross_attention_residual(y, attended)
        return self.feed_forward_residual(y, self.feed_forward(y))


class SelfAttention(nn.Module):
    """Attention whose queries, keys and values are one product; causal without mask."""

    def __init__(self, work: Workload) -> None:
        super().__init__()
        d_model = work.hparams.d_model
        self.num_heads = work.hparams.num_heads
        self.query_key_value = nn.Linear(d_model, 3 * d_model, bias=False)
        self.output = nn.Linear(d_model, d_model, bias=False)

    def forward(
        self, x: torch.Tensor, is_token: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Maps [B, T, D] to [B, T, D]."""
        query, key, value = heads(self.query_key_value(x), 3, self.num_heads)
        attended = functional.scaled_dot_product_attention(
            query, key, value, is_token, is_causal=is_token is None
        )
        return self.output(attended.transpose(1, 2).flatten(2))


class CrossAttention(nn.Module):
    """Attention to the encoder's output."""

    def __init__(self, work: Workload) -> None:
        super().__init__()
        d_model = work.hparams.d_model
        self.num_heads = work.hparams.num_heads
        self.query = nn.Linear(d_model, d_model, bias=False)
        self.key_value = nn.Linear(d_model, 2 * d_model, bias=False)
        self.output = nn.Linear(d_model, d_model, bias=False)

    def forward(
        self, y: torch.Tensor, encoder_output: torch.Tensor, is_token: torch.Tensor
    ) -> torch.Tensor:
        """Maps [B, T, D] to [B, T, D]."""
        (query,) = heads(self.query(y), 1, self.num_heads)
        key, value = heads(self.key_value(encoder_output), 2, self.num_heads)
        attended = functional.scaled_dot_product_attention(query, key, value, is_token)
        return self.output(attended.transpose(1, 2).flatten(2))


class Residual(nn.Module):
    """Adds the output of a sublayer after dropout, and normalizes in float32."""

    def __init__(self, work: Workload) -> None:
        super().__init__()
        self.dropout = work.hparams.dropout
        self.norm = nn.LayerNorm(work.hparams.d_model, eps=1e-6)

    def forward(self, x: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        """Maps two tensors [B, T, D] to one."""
        added = x + functional.dropout(output, self.dropout)
        return self.norm(added.float()).to(x.dtype)


def feed_forward(work: Workload) -> nn.Module:
    """Returns the two projections with ReLU between them."""
    hparams = work.hparams
    return nn.Sequential(
        nn.Linear(hparams.d_model, hparams.d_ff),
        nn.ReLU(),
        nn.Linear(hparams.d_ff, hparams.d_model),
    )


def heads(x: torch.Tensor, parts: int, num_heads: int) -> torch.Tensor:
    """Divides [B, T, parts * D] into tensors [parts, B, H, T, D / H]."""
    divided = x.unflatten(2, (parts, num_heads, -1))  # [B, T, parts, H, D / H]
    return divided.permute(2, 0, 3, 1, 4)


def sinusoids(length: int, d_model: int) -> torch.Tensor:
    """Returns the paper's positions [length, D]."""
    frequencies = torch.exp(torch.arange(0, d_model, 2) * (-math.log(1e4) / d_model))
    angles = torch.arange(length)[:, None] * frequencies  # [length, D / 2]
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
