"""Decoding step by step beside teacher forcing of the same targets."""

import numpy as np


def logits_both_ways(network, source, targets):
    """Returns the logits [B, K, T, V] of targets [B, K, T]: by steps, and at once."""
    batch, beams, steps = targets.shape
    cache = network.start_cache(network.encode(source), source, beams)
    shifted = np.pad(targets, ((0, 0), (0, 0), (1, 0)))
    stepwise = []
    for t in range(steps):
        logits, cache = network.decode_step(shifted[:, :, t], t, cache)
        stepwise.append(logits.numpy())
    forced = network(np.repeat(source, beams, 0), targets.reshape(-1, steps)).numpy()
    return np.stack(stepwise, 2), forced.reshape(batch, beams, steps, -1)
