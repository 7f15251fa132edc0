"""The files and tensor names of Marian models in Hugging Face transformers."""

import re

WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"

SHARED_EMBEDDING = "model.shared.weight"
SOURCE_EMBEDDING = "model.encoder.embed_tokens.weight"
TARGET_EMBEDDING = "model.decoder.embed_tokens.weight"
SOFTMAX = "lm_head.weight"
OUTPUT_BIAS = "final_logits_bias"

# The epsilon of torch's LayerNorm.
NORM_EPSILON = 1e-5

_PART = re.compile(r"(\w+)/layer_(\d+)/(\w+)/(\w+)/(\w+)")
_PART_NAMES = {
    "self_attention": "self_attn.",
    "cross_attention": "encoder_attn.",
    "feed_forward": "",
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "output": "out_proj",
    "inner": "fc1",
    "outer": "fc2",
    "kernel": "weight",
    "bias": "bias",
}

_NORM = re.compile(r"(\w+)/layer_(\d+)/(\w+)_residual/norm/(\w+)")
_NORM_NAMES = {
    "self_attention": "self_attn_layer_norm",
    "cross_attention": "encoder_attn_layer_norm",
    "feed_forward": "final_layer_norm",
    "gamma": "weight",
    "beta": "bias",
}


def hf_name(part: str) -> str:
    """Returns transformers' name of a part of a layer (`marian_weights`)."""
    if match := _NORM.fullmatch(part):
        stack, layer, sublayer, parameter = match.groups()
        name = f"{_NORM_NAMES[sublayer]}.{_NORM_NAMES[parameter]}"
    else:
        match = _PART.fullmatch(part)
        assert match
        stack, layer, sublayer, projection, parameter = match.groups()
        name = f"{_PART_NAMES[projection]}.{_PART_NAMES[parameter]}"
        name = _PART_NAMES[sublayer] + name
    return f"model.{stack}.layers.{layer}.{name}"
