"""Variables, and updates of an optimizer with given gradients."""

import tensorflow as tf

NAMES = ("model/a", "model/b")


def variable(value) -> tf.Variable:
    return tf.Variable(tf.constant(value, tf.float32))


def apply(optimizer, gradients, rate, step, is_applied=True):
    gradients = [tf.constant(gradient, tf.float32) for gradient in gradients]
    rate = tf.constant(rate, tf.float32)
    step = tf.constant(float(step))
    optimizer.apply(gradients, rate, step, tf.constant(is_applied))
