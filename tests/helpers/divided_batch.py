"""A program that divides a batch into two parts, in two ways.

    python -m helpers.divided_batch

It prints the names of the gradients that have other bits on two replicas than in two
micro-batches of one, compiled by XLA.
"""

import numpy as np
from helpers.one_step import HPARAMS, Setup, unequal_batch


def main() -> None:
    hparams = HPARAMS.override(
        **{"dropout": 0.1, "attention_dropout": 0.2, "ffn_dropout": 0.1},
        **{"bucketing": "static", "jit_compile": True},
    )
    replicas = Setup(2, hparams).gradients(*unequal_batch(1))
    micro_batches = Setup(1, hparams, 2).gradients(*unequal_batch(1))
    for name, gradient in replicas.items():
        if not np.array_equal(gradient, micro_batches[name]):
            print(name)


if __name__ == "__main__":
    main()
