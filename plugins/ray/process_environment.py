"""The environment of the processes that train on the nodes of a cluster."""

import os
from collections.abc import Mapping

_PREFIXES = ("TF_", "XLA_", "KERAS_", "NCCL_", "OMP_", "T2T_", "WANDB_")
_TF_CONFIG = "TF_CONFIG"  # names the processes of one training
_OMP_NUM_THREADS = "OMP_NUM_THREADS"


def shared_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of this machine that processes on other nodes get.

    Those that name GPUs are not among them: Ray assigns GPUs.

    Args:
        environ: the environment of this machine.
    """
    variables = {}
    for name, value in environ.items():
        if name.startswith(_PREFIXES) and name != _TF_CONFIG:
            variables[name] = value
    return variables


def process_environment(additions: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a process that an actor of Ray starts.

    Args:
        additions: what is added to the environment of the actor.
    """
    environment = dict(os.environ)
    environment.pop(_OMP_NUM_THREADS, None)  # Ray's: the cores of the actor
    environment.pop(_TF_CONFIG, None)  # that of `ray start`
    environment.update(additions)
    return environment
