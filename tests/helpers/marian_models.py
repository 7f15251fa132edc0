"""Random Marian models in both forms on disk, and their formulas in NumPy.

Weights have Marian's names: `encoder_l1_self_Wq`, `decoder_l1_context_Wo_ln_scale`.
"""

import json
from pathlib import Path

import numpy as np
import sentencepiece
import yaml
from helpers.numpy_transformer import attention, layer_norm, sinusoids, timing_signal
from helpers.small_data import sentence_pairs
from safetensors.numpy import save_file

D = 16
F = 24
HEADS = 2
ENCODER = 2
DECODER = 1
LANGUAGE = ">>fra<<"
# Pieces of the SentencePiece models that the lists of tokens lack.
LEFT_OUT = {"▁dog", "▁cat"}
POST = {"preprocess": "", "postprocess": "dan", "postprocess-top": ""}
PRE = {"preprocess": "n", "postprocess": "da", "postprocess-top": "n"}


def write_splitters(folder: Path) -> None:
    """Trains `source.spm` and `target.spm`, which normalize as OPUS-MT's do."""
    folder.mkdir(parents=True, exist_ok=True)
    for column, side in enumerate(("source", "target")):
        texts = [pair[column] for pair in sentence_pairs()]
        if side == "target":  # other words, so that the lists of tokens differ
            texts = [text.replace("the", "les").replace("a ", "un ") for text in texts]
            texts = [text.replace("road", "rué") for text in texts]
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_prefix=str(folder / side),
            **{"vocab_size": 70, "hard_vocab_limit": False},
            **{"character_coverage": 1.0, "minloglevel": 2},
        )
        (folder / f"{side}.model").rename(folder / f"{side}.spm")


def pieces(folder: Path, side: str) -> list[str]:
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
    return model.id_to_piece(list(range(len(model))))[3:]  # without <unk> <s> </s>


def token_list(folder: Path, *sides: str) -> list[str]:
    """Marian's: EOS and the unknown token first, then what the texts have."""
    tokens = dict.fromkeys(piece for side in sides for piece in pieces(folder, side))
    return ["</s>", "<unk>", *(t for t in tokens if t not in LEFT_OUT), LANGUAGE]


def weights(sizes: tuple[int, int], tying: str, pre_norm: bool) -> dict:
    """Random weights.

    Args:
        sizes: of the vocabularies.
        tying: "all", "decoder" or "none", as Marian's --tied-embeddings-all,
            --tied-embeddings, or neither.
        pre_norm: whether layer norms come first.
    """
    rng = np.random.default_rng(0)

    def random(*shape, around=0.0):
        return rng.normal(around, 0.3, shape).astype(np.float32)

    arrays = {}

    def norm(name):
        arrays[f"{name.replace('ln', 'ln_scale')}"] = random(1, D, around=1.0)
        arrays[f"{name.replace('ln', 'ln_bias')}"] = random(1, D)

    suffix = "_pre" if pre_norm else ""
    for stack, depth in (("encoder", ENCODER), ("decoder", DECODER)):
        for layer in (f"{stack}_l{i + 1}" for i in range(depth)):
            for attention_name in ("self", "context")[: 1 + (stack == "decoder")]:
                for letter in "qkvo":
                    arrays[f"{layer}_{attention_name}_W{letter}"] = random(D, D)
                    arrays[f"{layer}_{attention_name}_b{letter}"] = random(1, D)
                norm(f"{layer}_{attention_name}_Wo_ln{suffix}")
            for matrix, shape in (("1", (D, F)), ("2", (F, D))):
                arrays[f"{layer}_ffn_W{matrix}"] = random(*shape)
                arrays[f"{layer}_ffn_b{matrix}"] = random(1, shape[1])
            norm(f"{layer}_ffn_ffn_ln{suffix}")
        if pre_norm:
            norm(f"{stack}_top_ln")
    if tying == "all":
        arrays["Wemb"] = random(sizes[0], D)
    else:
        arrays["encoder_Wemb"] = random(sizes[0], D)
        arrays["decoder_Wemb"] = random(sizes[1], D)
    if tying == "none":
        arrays["decoder_ff_logit_out_W"] = random(D, sizes[1])
    arrays["decoder_ff_logit_out_b"] = random(1, sizes[1])
    return arrays


def log_probs(weights, source, target, pre_norm=False, swish=True, hf=False):
    """Log-probabilities [T, V] of a pair of lists of Marian's ids.

    Args:
        weights: with Marian's names.
        source: ids.
        target: ids, EOS last.
        pre_norm: whether layer norms come first.
        swish: whether the activation is swish, not ReLU.
        hf: whether to compute as `MarianMTModel` does: its epsilon is 1e-5, and its
            positions are the paper's in another order.
    """
    logits = NumpyMarian(weights, pre_norm, swish, hf).logits(source, target)
    largest = logits.max(-1, keepdims=True)
    return logits - largest - np.log(np.exp(logits - largest).sum(-1, keepdims=True))


class NumpyMarian:
    """Marian's formulas in float64; `log_probs` describes the arguments."""

    def __init__(self, weights, pre_norm, swish, hf):
        self.weights = {k: value.astype(np.float64) for k, value in weights.items()}
        self.pre_norm = pre_norm
        self.swish = swish
        self.hf = hf

    def logits(self, source, target):
        full_mask = np.ones((len(source), len(source)), bool)
        x = self.embed(source, ["encoder_Wemb", "Wemb"])
        memory = self.stack("encoder", ENCODER, x, full_mask)
        past = np.tril(np.ones((len(target), len(target)), bool))
        x = self.embed(target, ["decoder_Wemb", "Wemb"], shift=True)
        x = self.stack("decoder", DECODER, x, past, memory)
        w = self.weights
        if "decoder_ff_logit_out_W" in w:
            logits = x @ w["decoder_ff_logit_out_W"]
        else:
            logits = x @ (w["decoder_Wemb"] if "decoder_Wemb" in w else w["Wemb"]).T
        return logits + w["decoder_ff_logit_out_b"]

    def stack(self, name, depth, x, allowed, memory=None):
        for layer in (f"{name}_l{i + 1}" for i in range(depth)):
            scope = f"{layer}_self"
            x = self.residual(
                x,
                lambda y, scope=scope: self.attend(y, y, scope, allowed),
                f"{scope}_Wo",
            )
            if memory is not None:
                scope = f"{layer}_context"
                x = self.residual(
                    x,
                    lambda y, scope=scope: self.attend(
                        y, memory, scope, np.ones((len(y), len(memory)), bool)
                    ),
                    f"{scope}_Wo",
                )
            ffn = f"{layer}_ffn"
            x = self.residual(
                x, lambda y, ffn=ffn: self.feed_forward(y, ffn), f"{ffn}_ffn"
            )
        return self.norm(x, f"{name}_top", "") if self.pre_norm else x

    def residual(self, x, sublayer, norm_name):
        if self.pre_norm:
            return x + sublayer(self.norm(x, norm_name, "_pre"))
        return self.norm(x + sublayer(x), norm_name, "")

    def norm(self, x, name, suffix):
        scale = self.weights[f"{name}_ln_scale{suffix}"]
        bias = self.weights[f"{name}_ln_bias{suffix}"]
        return layer_norm(x, scale, bias, 1e-5 if self.hf else 1e-6)

    def attend(self, x, memory, name, allowed):
        w = self.weights
        q, k, v = (
            np.split(y @ w[f"{name}_W{letter}"] + w[f"{name}_b{letter}"], HEADS, 1)
            for letter, y in (("q", x), ("k", memory), ("v", memory))
        )
        heads = [attention(*parts, allowed) for parts in zip(q, k, v, strict=True)]
        return np.concatenate(heads, 1) @ w[f"{name}_Wo"] + w[f"{name}_bo"]

    def feed_forward(self, x, name):
        w = self.weights
        inner = x @ w[f"{name}_W1"] + w[f"{name}_b1"]
        inner = inner / (1 + np.exp(-inner)) if self.swish else np.maximum(inner, 0)
        return inner @ w[f"{name}_W2"] + w[f"{name}_b2"]

    def embed(self, ids, names, shift=False):
        table = next(self.weights[name] for name in names if name in self.weights)
        x = table[ids] * np.sqrt(D)
        if shift:  # the decoder starts from zeros
            x = np.concatenate([np.zeros((1, D)), x[:-1]])
        signal = timing_signal(len(ids), D)
        if self.hf:
            signal = sinusoids(len(ids), D)
            signal = np.concatenate([signal[:, 0::2], signal[:, 1::2]], axis=1)
        return x + signal


def settings(norms=None, **changes) -> dict:
    """What Marian writes into a model, under its names with underscores."""
    of_transformer = {
        **{"dim-ffn": F, "heads": HEADS, "ffn-activation": "swish"},
        **{"decoder-autoreg": "self-attention", "guided-alignment-layer": "last"},
        **{"no-projection": False, "postprocess-emb": "d", **(norms or POST)},
    }
    values = {f"transformer-{name}": value for name, value in of_transformer.items()}
    values |= {"type": "transformer", "dim-emb": D}
    values |= {"enc-depth": ENCODER, "dec-depth": DECODER}
    return values | {name.replace("_", "-"): value for name, value in changes.items()}


def write_marian(folder: Path, variables: dict, config: dict, vocabs: list) -> Path:
    """Writes a directory as OPUS-MT packs it; has source.spm and target.spm already.

    Args:
        folder: the directory.
        variables: see `weights`.
        config: see `settings`.
        vocabs: the lists of tokens of source and target; one list is one file.
    """
    text = np.frombuffer(yaml.safe_dump(config).encode() + b"\0", np.int8)
    np.savez(folder / "model.npz", **variables, **{"special:model.yml": text})
    names = (
        ["vocab.yml"] * 2 if len(vocabs) == 1 else ["vocab.src.yml", "vocab.trg.yml"]
    )
    for name, tokens in zip(names, [vocabs[0], vocabs[-1]], strict=True):
        ids = {token: i for i, token in enumerate(tokens)}
        # Quoted, as Marian writes it.
        lines = [f"{json.dumps(t, ensure_ascii=False)}: {i}\n" for t, i in ids.items()]
        (folder / name).write_text("".join(lines), encoding="utf-8")
    decoder = {"relative-paths": True, "models": ["model.npz"], "vocabs": names}
    decoder |= {"beam-size": 6, "normalize": 1}
    (folder / "decoder.yml").write_text(yaml.safe_dump(decoder))
    return folder


_HF_KINDS = {"self": "self_attn", "context": "encoder_attn"}


def hf_tensors(variables: dict) -> dict[str, np.ndarray]:
    """The tensors of `MarianMTModel`; embeddings get a row of zeros for padding."""
    tensors = {}
    for name, value in variables.items():
        if name.endswith(("Wemb", "logit_out_W", "logit_out_b")):
            continue
        stack, layer, sublayer, *suffixes = name.split("_")
        scope = f"model.{stack}.layers.{int(layer[1:]) - 1}"
        parameter = (
            "weight" if suffixes[-1][0] == "W" or "scale" in suffixes else "bias"
        )
        if "ln" in suffixes:
            module = f"{_HF_KINDS.get(sublayer, 'final')}_layer_norm"
        elif sublayer == "ffn":
            module = f"fc{suffixes[0][1]}"
        else:
            letter = suffixes[0][1]
            part = "out_proj" if letter == "o" else f"{letter}_proj"
            module = f"{_HF_KINDS[sublayer]}.{part}"
        array = value[0] if value.shape[0] == 1 else value.T
        tensors[f"{scope}.{module}.{parameter}"] = np.ascontiguousarray(array)
    padding = np.zeros((1, D), np.float32)
    if "Wemb" in variables:
        tensors["model.shared.weight"] = np.concatenate([variables["Wemb"], padding])
    else:
        for stack in ("encoder", "decoder"):
            matrix = np.concatenate([variables[f"{stack}_Wemb"], padding])
            tensors[f"model.{stack}.embed_tokens.weight"] = matrix
    if "decoder_ff_logit_out_W" in variables:
        matrix = np.concatenate([variables["decoder_ff_logit_out_W"].T, padding])
        # Of another array, `save_file` writes the memory as it is.
        tensors["lm_head.weight"] = np.ascontiguousarray(matrix)
    bias = variables["decoder_ff_logit_out_b"]
    # The padding's logit, 0 otherwise, would take part in the softmax.
    tensors["final_logits_bias"] = np.concatenate(
        [bias, np.full((1, 1), -50, np.float32)], axis=1
    )
    return tensors


def hf_config(size: int, **changes) -> dict:
    return {
        **{"model_type": "marian", "architectures": ["MarianMTModel"], "d_model": D},
        **{"vocab_size": size, "decoder_vocab_size": size, "dropout": 0.2},
        **{"encoder_layers": ENCODER, "decoder_layers": DECODER},
        **{"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS},
        **{"encoder_ffn_dim": F, "decoder_ffn_dim": F, "activation_function": "swish"},
        **{"scale_embedding": True, "normalize_embedding": False},
        **{"static_position_embeddings": True, "max_position_embeddings": 128},
        **{"pad_token_id": size - 1, "decoder_start_token_id": size - 1},
        **{"eos_token_id": 0, "forced_eos_token_id": None, **changes},
    }


def write_hf(folder: Path, variables: dict, config: dict, tokens: list[str]) -> Path:
    """Writes a directory as `save_pretrained` does; has the two .spm already."""
    save_file(hf_tensors(variables), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    ids = {token: i for i, token in enumerate([*tokens, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False))
    return folder
