"""Sizes and costs by arithmetic, against the model's own graph and the paper."""

from pathlib import Path

import pytest
import tensorflow as tf
from helpers.command_line import run_json, run_refused

from t2t_keras.hparam import HParams
from t2t_keras.model import build_model
from t2t_keras.plugins.reports.costs import (
    count_parameters,
    flops_per_token,
    layer_complexities,
    memory_per_batch,
    shown_flops,
    training_cost,
)
from t2t_keras.run.checkpoint import model_variables
from t2t_keras.training.optimizer import make_optimizer

EXTENDED = {"model": "extended_transformer", "num_layers": 2}
SMALL = {"num_layers": 1, "d_model": 32, "d_ff": 128, "num_heads": 4}
VOCAB = 512
BATCH = 2
LENGTH = 64


# Parameters


@pytest.mark.parametrize(
    ("options", "target"),
    [
        ({}, None),
        ({}, 301),
        ({"share_embeddings": False}, None),
        ({"num_layers": 2, "share_embeddings": False, "norm": "pre"}, 301),
        ({"position": "learned", "max_positions": 50, "d_k": 3, "d_v": 5}, None),
        ({"attention": "additive", "norm": "pre", "d_k": 6}, None),
        ({"attention_window": 4}, None),
        (EXTENDED | {"num_decoder_layers": 3, "target_space": True}, None),
        (EXTENDED | {"attention_bias": True, "output_bias": True, "d_k": 3}, 301),
    ],
    ids=str,
)
def test_parameters_are_the_models(options, target):
    hparams = HParams().override(**SMALL | options)
    model = build_model(hparams, VOCAB, target)
    parts = count_parameters(hparams, VOCAB, target)
    assert parts["total"] == model.count_params()

    def size(*words):
        count = 0
        for name, value in model_variables(model).items():
            if all(word in name for word in words):
                count += value.shape.num_elements()
        return count

    tables = size("/table")
    assert parts["positions"] == size("positions/")
    assert parts["target_space"] == size("target_space/")
    assert parts["output_bias"] == size("/output_bias")
    assert parts["embeddings"] == tables - parts["positions"]
    for stack in ("encoder", "decoder"):
        assert parts[f"{stack}_layer_norm"] == size(f"{stack}/", "norm/")
        for name in ("self_attention", "cross_attention", "feed_forward"):
            assert parts.get(f"{stack}_{name}", 0) == size(f"{stack}/", f"{name}/")


# FLOPs and memory, against the graph of the model's forward and backward pass


def training_graph(hparams, length=LENGTH):
    """Returns the operations of forward and backward pass, told apart.

    Those on which no gradient depends are left out, as TensorFlow does.
    """
    model = build_model(hparams, VOCAB)
    weights = [weight.value for weight in model.trainable_variables]
    inputs = set()

    def gradients(source, target, seed):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(model(source, target, seed=seed)))
        inputs.update(op.name for op in loss.graph.get_operations())
        return [tf.convert_to_tensor(g) for g in tape.gradient(loss, weights)]

    ids = tf.TensorSpec([BATCH, length], tf.int32)
    seed = tf.TensorSpec([2], tf.int32)
    function = tf.function(gradients, autograph=False)
    graph = function.get_concrete_function(ids, ids, seed).graph
    needed = set()
    stack = [tensor.op for tensor in graph.outputs]
    while stack:
        op = stack.pop()
        if op.name not in needed:
            needed.add(op.name)
            stack += [tensor.op for tensor in op.inputs]
    forward = []
    backward = []
    for op in graph.get_operations():
        if op.name in needed:
            (forward if op.name in inputs else backward).append(op)
    return forward, backward


def matmul_flops(operations):
    """Two for each multiplication of all matrix products.

    Products of a matrix and a vector are how sums and means are taken, not counted.
    """
    total = 0
    for op in operations:
        assert "Einsum" not in op.type and "Conv" not in op.type
        is_sum = op.type == "MatMul" and 1 in op.outputs[0].shape
        if "MatMul" in op.type and not is_sum:
            flag = "transpose_a" if op.type == "MatMul" else "adj_x"
            inner = op.inputs[0].shape[-2 if op.get_attr(flag) else -1]
            total += 2 * op.outputs[0].shape.num_elements() * inner
    return total


@pytest.mark.parametrize(
    "options",
    [
        {"d_k": 3, "d_v": 5, "num_heads": 3},
        {"num_layers": 2, "norm": "pre", "share_embeddings": False},
        {"attention_window": 16},  # blocks of 8 and of 15
        {"attention_window": 1},
        {"attention": "additive", "d_v": 5},
        EXTENDED | {"num_decoder_layers": 1},
    ],
    ids=str,
)
def test_flops_match_the_graph(options):
    hparams = HParams().override(**SMALL | options)
    length = 120 if "attention_window" in options else 16  # whole blocks
    forward, backward = training_graph(hparams, length)
    expected = flops_per_token(hparams, VOCAB, length)
    pairs = BATCH * length
    assert matmul_flops(forward) == expected["forward"] * pairs
    assert (
        matmul_flops(backward) == (expected["training"] - expected["forward"]) * pairs
    )


@pytest.mark.parametrize(
    "options",
    [
        {"dropout": 0.0},
        pytest.param(
            {"attention_dropout": 0.1, "ffn_dropout": 0.1}, marks=pytest.mark.slow
        ),
        pytest.param({"compute_dtype": "bfloat16"}, marks=pytest.mark.slow),
        {"compute_dtype": "bfloat16", "attention_dropout": 0.1, "ffn_dropout": 0.1},
        {"norm": "pre", "num_layers": 2},
        EXTENDED | {"num_decoder_layers": 1},
        {"d_ff": 1024, "num_heads": 16},
    ],
    ids=str,
)
def test_activations_are_what_the_backward_pass_reads(options):
    """Within 10%: everything that a backward operation reads of a forward one."""
    hparams = HParams().override(**SMALL | options, batch_tokens=BATCH * LENGTH)
    forward, backward = training_graph(hparams)
    of_forward = {op.name for op in forward}
    tensors = {}
    for op in backward:
        if op.type in ("Shape", "ShapeN", "Size"):
            continue
        for tensor in op.inputs:
            while tensor.op.type in ("Reshape", "Identity"):  # the same memory
                tensor = tensor.op.inputs[0]
            shape = tensor.shape
            # The logits are counted by themselves: the loss of a training is another.
            is_activation = (
                shape.rank
                and shape[0] in (BATCH, BATCH * LENGTH)
                and shape[-1] != VOCAB
            )
            if tensor.op.name in of_forward and is_activation:
                tensors[tensor.name] = shape.num_elements() * tensor.dtype.size
    memory = memory_per_batch(hparams, 0, VOCAB, LENGTH, replicas=1)
    assert sum(tensors.values()) == pytest.approx(memory["activations"], rel=0.1)


def test_memory_of_weights_and_batch():
    parameters = 1000
    hparams = HParams(**SMALL)
    one_gpu, eight = (
        memory_per_batch(hparams, parameters, VOCAB, LENGTH, replicas=n) for n in (1, 8)
    )
    for memory in (one_gpu, eight):
        state = [memory[name] for name in ("weights", "adam", "gradients")]
        assert state == [4 * parameters, 8 * parameters, 4 * parameters]
        assert memory["total"] == sum(memory.values()) - memory["total"]
    assert one_gpu["logits"] == 8 * eight["logits"] == 25_000 * VOCAB * 8
    assert one_gpu["activations"] == 8 * eight["activations"]


def test_memory_of_the_optimizers_state():
    """What each keeps between updates, by the variables of a real one."""
    for name, decay in (("adam", 0.0), ("adamw", 0.1), ("adafactor", 0.0)):
        hparams = HParams(**SMALL, optimizer=name, weight_decay=decay)
        weights = model_variables(build_model(hparams, 100 * VOCAB))
        optimizer = make_optimizer(weights, hparams)
        parameters = sum(weight.shape.num_elements() for weight in weights.values())
        memory = memory_per_batch(hparams, parameters, VOCAB, LENGTH, replicas=1)
        state = sum(slot.shape.num_elements() for slot in optimizer.variables.values())
        # Adafactor's is an estimate.
        assert memory[name] == pytest.approx(4 * state, rel=0.1 * (name == "adafactor"))


# The command


def test_describe(capfd):
    result = run_json(capfd, "describe", "--hparams_set", "big", "--hours", "84")
    assert result["parameters"]["total"] == 214_171_648
    parts = dict(result["parameters"])
    assert parts.pop("total") == sum(parts.values())
    assert result["training_cost"] == pytest.approx(2.3e19, rel=0.01)
    training = result["flops_per_token"]["training"]
    assert training == 3 * result["flops_per_token"]["forward"]
    assert result["training_flops"] == training * 25_000 * 300_000
    assert result["bucketing"] == "auto"
    assert result["layers"]["recurrent"]["sequential"] == 32
    assert result["memory"]["weights"] == 4 * 214_171_648


def test_a_model_whose_parts_are_unknown_is_refused(capfd):
    folder = Path(__file__).parents[3] / "examples" / "modern_transformer"
    words = ("--usr_dir", folder, "--hparams_set")
    sentence = run_refused(capfd, "describe", *words, "modern_tiny")
    assert "modern_tiny has the model modern_transformer" in sentence
    words = (*words, "base", "--hparams", "model=modern_transformer")
    assert "supports only transformer and" in run_refused(capfd, "describe", *words)


# Tables 1 and 2 of the paper


def test_training_costs_of_table_2():
    assert training_cost(12, 8, 9.5) == pytest.approx(3.3e18, rel=0.01)
    assert shown_flops(training_cost(12, 8, 9.5)) == "3.3 · 10^18 FLOPs"
    assert training_cost(3.5 * 24, 8, 9.5) == pytest.approx(2.3e19, rel=0.01)


def test_complexities_of_table_1():
    rows = layer_complexities(length=70, d_model=512, kernel=3, window=10)
    assert {name: tuple(row) for name, row in rows.items()} == {
        "self_attention": (70 * 70 * 512, 1, 1),
        "recurrent": (70 * 512 * 512, 70, 70),
        "convolutional": (3 * 70 * 512 * 512, 1, 4),  # 3^3 < 70 <= 3^4
        "separable_convolutional": (3 * 70 * 512 + 70 * 512 * 512, 1, 4),
        "restricted_self_attention": (10 * 70 * 512, 1, 7),
    }
    # "Self-attention layers are faster than recurrent layers when n < d."
    for n in (511, 513):
        rows = layer_complexities(n, 512, 3, 10)
        faster = rows["self_attention"].operations < rows["recurrent"].operations
        assert faster == (n < 512)
    unrestricted = layer_complexities(27, 512, 3, 100)
    assert unrestricted["convolutional"].path == 3  # log_3(27) exactly
    assert unrestricted["restricted_self_attention"] == unrestricted["self_attention"]


def test_a_separable_convolution_over_everything_costs_attention_and_a_layer():
    """With k = n: n^2 d of self-attention, and n d^2 of a point-wise layer (4)."""
    n = 40
    d = 512
    layers = layer_complexities(n, d, n, 10)
    attention = layers["self_attention"].operations
    assert layers["separable_convolutional"].operations == attention + n * d * d
