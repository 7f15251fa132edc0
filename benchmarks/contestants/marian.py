"""MarianMT of transformers, compiled by PyTorch for training."""

from collections.abc import Callable

import torch
from torch.nn import functional
from transformers import MarianConfig, MarianMTModel
from workload import EOS, PAD, Workload

from contestants import TrainingStep
from contestants.pytorch import DEVICE, compiled_step, uses_gpu

__all__ = ["search", "training_step", "uses_gpu"]


def training_step(work: Workload) -> TrainingStep:
    """Returns an update with the label-smoothed loss of all other contestants."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = MarianMTModel(_config(work)).to(DEVICE).train()
    source, target = (torch.from_numpy(work.ids(i)).long().to(DEVICE) for i in (0, 1))
    is_token = (source != PAD).long()
    decoder_inputs = functional.pad(target, (1, 0))[:, :-1]

    def loss() -> torch.Tensor:
        logits = model(
            input_ids=source,
            attention_mask=is_token,
            decoder_input_ids=decoder_inputs,
            use_cache=False,
        ).logits  # [B, T, V]
        return functional.cross_entropy(
            logits.flatten(0, 1).float(),
            target.flatten(),
            ignore_index=PAD,
            label_smoothing=work.hparams.label_smoothing,
        )

    return compiled_step(work, model, loss)


def search(work: Workload, beam_size: int, steps: int) -> Callable[[], None]:
    """Returns `generate`, which is faster without compilation."""
    torch.manual_seed(0)
    dtype = getattr(torch, work.hparams.compute_dtype)
    model = MarianMTModel(_config(work)).to(DEVICE, dtype).eval()
    source = torch.from_numpy(work.ids(0)).long().to(DEVICE)
    is_token = torch.ones_like(source)

    @torch.inference_mode()
    def run() -> None:
        outputs = model.generate(
            input_ids=source,
            attention_mask=is_token,
            num_beams=beam_size,
            length_penalty=0.6,
            min_new_tokens=steps,
            max_new_tokens=steps,
            do_sample=False,
            early_stopping=False,
        )
        # The first token of an output is its start.
        assert outputs.cpu().shape == (work.batch, 1 + steps)

    return run


def _config(work: Workload) -> MarianConfig:
    hparams = work.hparams
    return MarianConfig(
        vocab_size=work.padded_vocab_size,
        d_model=hparams.d_model,
        encoder_layers=hparams.num_layers,
        decoder_layers=hparams.num_layers,
        encoder_attention_heads=hparams.num_heads,
        decoder_attention_heads=hparams.num_heads,
        encoder_ffn_dim=hparams.d_ff,
        decoder_ffn_dim=hparams.d_ff,
        dropout=hparams.dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=256,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=PAD,
        bos_token_id=None,
        forced_eos_token_id=None,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
