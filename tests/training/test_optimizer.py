"""The optimizers against their equations in NumPy, and against those of Keras."""

import inspect
import json
import textwrap

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers.errors import refused
from helpers.optimizer_steps import NAMES, apply, variable
from helpers.reference import reference
from helpers.small_run import trainer, weights

from t2t_keras import register_optimizer, register_schedule_factor
from t2t_keras.entry_points import plugin_names
from t2t_keras.hparam import PAPER_SCHEDULE, HParams
from t2t_keras.model import Schedule
from t2t_keras.run.checkpoint import model_variables, snapshot
from t2t_keras.run.directory import RunDirectory
from t2t_keras.training.optimizer import (
    Adam,
    add_to,
    learning_rate,
    make_optimizer,
    require_unchanged,
)

ADAMW = HParams(optimizer="adamw", weight_decay=0.1)
# Those of plugins are tested as well, if they are installed.
OTHERS = [HParams(optimizer=name) for name in plugin_names("optimizers")]


class NumpyAdam:
    """Kingma and Ba (2015), end of section 2: epsilon is not corrected for bias."""

    def __init__(self, hparams):
        self.hparams = hparams
        self.m = 0.0
        self.v = 0.0

    def apply(self, weight, gradient, rate, t):
        beta1 = self.hparams.adam_beta1
        beta2 = self.hparams.adam_beta2
        self.m = beta1 * self.m + (1 - beta1) * gradient
        self.v = beta2 * self.v + (1 - beta2) * gradient**2
        rate *= np.sqrt(1 - beta2**t) / (1 - beta1**t)
        return weight - rate * self.m / (np.sqrt(self.v) + self.hparams.adam_epsilon)


@pytest.mark.parametrize(
    "options", [{}, {"adam_beta1": 0.8, "adam_beta2": 0.997, "adam_epsilon": 1e-2}]
)
def test_thirty_steps_are_the_equations(options):
    hparams = HParams(**options)
    rng = np.random.default_rng(0)
    shapes = [(3, 4), (5,)]
    expected = [rng.normal(size=shape) for shape in shapes]
    variables = [tf.Variable(tf.constant(w, tf.float32)) for w in expected]
    adam = Adam(dict(zip(NAMES, variables, strict=True)), hparams)
    truth = [NumpyAdam(hparams) for _ in shapes]
    for step in range(1, 31):
        gradients = [rng.normal(size=shape) * 10.0**-step for shape in shapes]
        rate = 0.1 / step
        apply(adam, gradients, rate, step)
        triples = zip(truth, expected, gradients, strict=True)
        expected = [
            adam_.apply(w, gradient, rate, step) for adam_, w, gradient in triples
        ]
        for actual, weight in zip(variables, expected, strict=True):
            np.testing.assert_allclose(actual.numpy(), weight, atol=2e-5)
    for name, numpy_adam in zip("ab", truth, strict=True):
        for slot, moment in (("m", numpy_adam.m), ("v", numpy_adam.v)):
            scale = np.abs(moment).max()
            actual = adam.variables[f"adam/{slot}/{name}"].numpy()
            np.testing.assert_allclose(actual, moment, atol=1e-5 * scale)


@pytest.mark.parametrize("hparams", [ADAMW, *OTHERS], ids=lambda x: x.optimizer)
@pytest.mark.parametrize("rate", [0.01, 0.5])  # Adafactor's is at most step^-0.5
def test_ten_steps_match_keras(hparams, rate):
    rng = np.random.default_rng(2)
    values = [rng.normal(size=shape) for shape in ((6, 4), (2, 3, 5), (7,))]
    ours = {f"model/{i}": variable(value) for i, value in enumerate(values)}
    keras_variables = [keras.Variable(value, dtype="float32") for value in values]
    optimizer = make_optimizer(ours, hparams)
    keras_optimizers = keras.optimizers
    if hparams is not ADAMW:
        keras_optimizer = keras_optimizers.get(
            {"class_name": hparams.optimizer, "config": {}}
        )
        keras_optimizer.learning_rate = rate
    else:
        keras_optimizer = keras_optimizers.AdamW(rate, 0.1, 0.9, 0.98, epsilon=1e-9)
        keras_optimizer.build(keras_variables)
        keras_optimizer.exclude_from_weight_decay([keras_variables[-1]])
    for step in range(1, 11):
        gradients = [
            rng.normal(size=value.shape) * 10.0 ** (i - step)
            for i, value in enumerate(values)
        ]
        apply(optimizer, gradients, rate, step)
        keras_optimizer.apply(
            [tf.constant(g, tf.float32) for g in gradients], keras_variables
        )
    for weight, expected in zip(ours.values(), keras_variables, strict=True):
        np.testing.assert_allclose(weight.numpy(), expected.numpy(), rtol=1e-4)


@pytest.mark.parametrize("steps_before", [0, 3])
@pytest.mark.parametrize(
    "hparams", [HParams(), ADAMW, *OTHERS], ids=lambda x: x.optimizer
)
def test_a_skipped_update_leaves_weights_and_state(hparams, steps_before):
    rng = np.random.default_rng(4)
    shapes = dict(zip(NAMES, [(4, 3), (3,)], strict=True))
    weights = {name: variable(rng.normal(size=s)) for name, s in shapes.items()}
    optimizer = make_optimizer(weights, hparams)
    for step in range(1, steps_before + 1):
        apply(optimizer, [rng.normal(size=(4, 3)), rng.normal(size=3)], 0.1, step)
    state = {**weights, **optimizer.variables}
    initial = {name: value.numpy() for name, value in state.items()}
    zeros = [np.zeros((4, 3)), np.zeros(3)]
    apply(optimizer, zeros, 0.1, steps_before + 1, is_applied=False)
    for name, value in state.items():
        np.testing.assert_array_equal(value.numpy(), initial[name], err_msg=name)


# The learning rate: the paper's formula, and tensor2tensor's tables of it.


def test_closed_forms():
    base = HParams()
    # At the end of the warm-up both branches meet: d^-0.5 w^-0.5.
    np.testing.assert_allclose(learning_rate(base, 4000), (512 * 4000) ** -0.5)
    np.testing.assert_allclose(learning_rate(base, 1), 512**-0.5 * 4000**-1.5)
    # Linear before, one over the root after.
    ratio = learning_rate(base, 2000) / learning_rate(base, 500)
    np.testing.assert_allclose(ratio, 4)
    ratio = learning_rate(base, 100_000) / learning_rate(base, 25_000)
    np.testing.assert_allclose(ratio, 0.5)


def test_constant_with_warm_up():
    changes = {"schedule": "constant*linear_warmup", "learning_rate": 3e-4}
    hparams = HParams(**changes, warmup_steps=10)
    rates = [learning_rate(hparams, step) for step in (1, 5, 10, 11, 10_000)]
    np.testing.assert_allclose(rates, [3e-5, 1.5e-4, 3e-4, 3e-4, 3e-4])
    message = "schedule has no factor 'cosine'; it is a"
    refused(message, HParams().parse, "schedule=constant*cosine")


@pytest.mark.usefixtures("registrations")
def test_a_registered_factor():
    @register_schedule_factor
    def halving(hparams, step):
        return 2.0 ** -(keras.ops.cast(step, "float32") / hparams.warmup_steps)

    schedule = "linear_warmup*halving"
    hparams = HParams(schedule=schedule, learning_rate=3.0, warmup_steps=4)
    rates = [learning_rate(hparams, step) for step in (1, 4, 12)]
    expected = [3 / 4 * 2**-0.25, 3 / 2, 3 / 8]
    np.testing.assert_allclose(rates, expected, rtol=1e-6)
    assert {type(rate) for rate in rates} == {float}
    in_keras = [float(Schedule(hparams)(step - 1)) for step in (1, 4, 12)]
    np.testing.assert_allclose(in_keras, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "value, message",
    [
        (None, r"schedule 'wrong' at step 7: TypeError: "),
        (-1.0, r"at step 7: the learning rate must be a finite number .*, not -2\.0"),
        (float("nan"), "must be a finite number"),
    ],
)
@pytest.mark.usefixtures("registrations")
def test_a_factor_must_be_a_number(value, message):
    def wrong(hparams, step):
        return value

    register_schedule_factor(wrong)
    hparams = HParams(schedule="wrong", learning_rate=2.0)
    refused(message, learning_rate, hparams, 7)


def test_names_of_factors_are_unique():
    def constant(hparams, step):
        return 1.0

    message = "cannot be named 'constant': that is a factor"
    refused(message, register_schedule_factor, constant)


@pytest.mark.usefixtures("registrations")
def test_the_optimizer_in_the_documentation():
    lines = inspect.getdoc(register_optimizer).splitlines()
    code = textwrap.dedent("\n".join(line for line in lines if line[:4] == "    "))
    exec(code[: code.index("definition:")], {})
    weights = {"model/a": variable([1.0, 2.0, 3.0])}
    optimizer = make_optimizer(weights, HParams(optimizer="sign_descent"))
    apply(optimizer, [[0.5, 0.0, -7.0]], 0.25, 1)
    np.testing.assert_array_equal(weights["model/a"], [0.75, 2.0, 3.25])
    apply(optimizer, [[0.5, 0.0, -7.0]], 0.25, 2, is_applied=False)
    np.testing.assert_array_equal(weights["model/a"], [0.75, 2.0, 3.25])


@pytest.mark.usefixtures("registrations")
def test_an_optimizer_that_makes_nan_of_an_update_not_applied_is_refused():
    """The update is divided by zeros."""

    @register_optimizer
    class Careless:
        def __init__(self, weights, hparams):
            self.variables = {}
            self.weights = weights

        def apply(self, gradients, learning_rate, step, is_applied):
            rate = tf.where(is_applied, learning_rate, 0.0)
            for weight in self.weights.values():
                add_to(weight, -rate / tf.zeros_like(weight))

    weights = {"model/a": variable([1.0, 2.0]), "model/b": variable([np.nan])}
    hparams = HParams(optimizer="careless")
    optimizer = make_optimizer(weights, hparams)
    state = {**weights, **optimizer.variables}
    earlier = snapshot(state, 0)
    require_unchanged(state, earlier, hparams)
    apply(optimizer, [[0.5, 1.0], [0.0]], 0.25, 1, is_applied=False)
    message = "optimizer 'careless': apply changes 'model/a' although is_applied is fa"
    refused(message, require_unchanged, state, earlier, hparams)


@pytest.mark.usefixtures("registrations")
def test_optimizers_of_keras_are_refused():
    @register_optimizer
    def lion(weights, hparams):
        return keras.optimizers.Lion()

    message = "optimizer 'lion' must have a method `apply` and a dict `variables`"
    refused(message, make_optimizer, {}, HParams(optimizer="lion"))


@pytest.mark.usefixtures("registrations")
@pytest.mark.parametrize("name", ["Adam", *map(str.title, plugin_names("optimizers"))])
def test_names_of_optimizers_are_unique(name):
    message = f"cannot be named '{name.lower()}': that is an optimizer of an installed"
    refused(message, register_optimizer, type(name, (), {}))


# tensor2tensor's tables, and whether it counted updates from 0 or 1. The sets that say
# "legacy" count from 1, as the paper does; of a product the first update has rate 0.
PAPER = "constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size"
NO_WIDTH = "constant*linear_warmup*rsqrt_decay"
NORMALISED = "constant*linear_warmup*rsqrt_normalized_decay"


@pytest.mark.parametrize(
    ("name", "rate", "schedule", "first_step"),
    [
        ("transformer_base_v1", 1.0, PAPER_SCHEDULE, 1),
        ("transformer_base_v2", 2.0, PAPER_SCHEDULE, 1),
        ("transformer_big", 2.0, PAPER, 0),
        ("transformer_parsing_base", 2.0, PAPER, 0),
        ("transformer_base_single_gpu", 0.1, NO_WIDTH, 0),
        (f"{NO_WIDTH},const=0.1,w=4000", 0.1, NO_WIDTH, 0),
        (f"{NORMALISED},const=0.001,w=4000", 0.001, NORMALISED, 0),
        ("base_adafactor(warmup=10000)", 1.0, "rsqrt_decay", 0),
    ],
)
def test_equals_what_tensor2tensor_computed(name, rate, schedule, first_step):
    tables = json.loads(reference("t2t/oracle/misc/lr_schedules.json").read_text())
    table = tables[name]
    sizes = {"d_model": table["hidden"], "warmup_steps": table["warmup"]}
    hparams = HParams(**sizes, learning_rate=rate, schedule=schedule)
    for step, expected in zip(tables["_steps"], table["values"], strict=True):
        if step + first_step:  # ours count from 1
            actual = learning_rate(hparams, step + first_step)
            np.testing.assert_allclose(actual, expected, rtol=1e-5)


DECAY = 0.15


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_average_of_a_run(replicas, data_dir, tmp_path):
    hparams = {"options": {"save_every": 1}, "ema_decay": DECAY}
    figures = trainer(data_dir, tmp_path, replicas=replicas, **hparams).train()
    checkpoints = [weights(tmp_path, step) for step in (1, 2, 3, 4)]
    names = [name for name in checkpoints[0] if name.startswith("model/")]
    averages = {name for name in checkpoints[0] if name.startswith("ema/")}
    assert averages == {name.replace("model/", "ema/", 1) for name in names}
    for name in names:
        average = np.zeros_like(checkpoints[0][name])
        for t, tensors in enumerate(checkpoints, 1):
            decay = min(DECAY, (t - 1) / (t + 9))  # 0, 1/11, 2/12, then 0.15
            average = decay * average + (1 - decay) * tensors[name]
            actual = tensors[name.replace("model/", "ema/", 1)]
            np.testing.assert_allclose(actual, average, atol=1e-6, err_msg=name)

    # It can be chosen like any checkpoint, and was evaluated beside the others.
    run = RunDirectory(tmp_path)
    variables = model_variables(run.translator("ema").model)
    for name in names:
        expected = checkpoints[-1][name.replace("model/", "ema/", 1)]
        np.testing.assert_array_equal(variables[name], expected, err_msg=name)
    assert 0 < figures["dev_ema"]["nll"] != figures["dev_nll"]


def test_a_run_without_averages(trained_run):
    message = r"--checkpoint=ema: .* has no ema_decay"
    refused(message, RunDirectory(trained_run).translator, "ema")
