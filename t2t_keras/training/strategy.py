"""Where training runs: all GPUs of one or several machines, or the CPU, in parts."""

import tensorflow as tf

from t2t_keras.errors import UserError
from t2t_keras.training.cluster import Cluster


def make_strategy(simulate_devices: int = 0) -> tf.distribute.Strategy:
    """Returns a strategy with a replica on every GPU, or on the CPU without one.

    With several processes in the environment variable TF_CONFIG it waits until all of
    them have come to this point; the replicas are those of all their machines. Nothing
    may have run on TensorFlow before.

    Args:
        simulate_devices: replicas to make on the CPU instead, for tests.

    Raises:
        UserError: TensorFlow was already running with other devices; or TF_CONFIG is
            no such thing, or does not go together with simulated devices.
    """
    cluster = Cluster.from_environment()
    if cluster.size > 1:
        if simulate_devices > 1:
            raise UserError(
                f"--simulate_devices {simulate_devices} is for one process, and "
                f"TF_CONFIG names {cluster.size}; do without one of them"
            )
        return cluster.connect()
    if simulate_devices > 1:
        _split_cpu(simulate_devices)
        devices = [f"CPU:{i}" for i in range(simulate_devices)]
    else:
        gpus = [] if simulate_devices else tf.config.list_logical_devices("GPU")
        devices = [gpu.name for gpu in gpus] or ["CPU:0"]
    # NCCL where it exists; on a CPU, sums in an order that is always the same.
    on_cpu = devices[0].startswith("CPU")
    return tf.distribute.MirroredStrategy(
        devices,
        tf.distribute.ReductionToOneDevice("CPU:0") if on_cpu else None,
    )


def own_replicas(strategy: tf.distribute.Strategy) -> range:
    """Returns the ids of the replicas of this process; all are counted through."""
    count = len(strategy.extended.worker_devices)
    first = Cluster.of(strategy).index * count
    return range(first, first + count)


def distribute(
    strategy: tf.distribute.Strategy, parts: tf.data.Dataset
) -> tf.distribute.DistributedDataset:
    """Returns distributed batches of elements: the next one for each own replica."""
    return strategy.distribute_datasets_from_function(lambda context: parts)


def batch_spec(strategy: tf.distribute.Strategy) -> tuple[tf.TypeSpec, tf.TypeSpec]:
    """Returns the type of a distributed batch: source and target ids of any shape.

    As the input signature of a step it keeps TensorFlow from tracing every shape anew.
    """
    ids = tf.TensorSpec([None, None], tf.int32)
    nothing = tf.data.Dataset.from_generator(list, output_signature=(ids, ids))
    return distribute(strategy, nothing).element_spec


def _split_cpu(parts: int) -> None:
    """Makes the CPU appear as so many devices, or more."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    if len(tf.config.get_logical_device_configuration(cpu) or [cpu]) >= parts:
        return
    try:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * parts
        )
    except RuntimeError:
        raise UserError(
            f"--simulate_devices {parts}: TensorFlow already runs with fewer devices"
        ) from None
