"""Where training runs: on all GPUs of one or several machines, or on the CPU."""

import os
from collections.abc import Callable, Iterable, Mapping

import tensorflow as tf

from t2t_keras.arguments import checked
from t2t_keras.data.pipeline import Batch, batch_signature, untuned
from t2t_keras.errors import UserError
from t2t_keras.gpu_details import gpu_details
from t2t_keras.quantity import quantity
from t2t_keras.training.process_group import ProcessGroup
from t2t_keras.type_hints import NonNegative
from t2t_keras.xla_cache import keep_compiled_programs


@checked
def make_strategy(simulate_devices: NonNegative = 0) -> tf.distribute.Strategy:
    """Returns a strategy with a replica on every GPU, or on the CPU without one.

    With several processes in the environment variable TF_CONFIG it waits until all of
    them have come to this point; the replicas are those of all their machines. Nothing
    may have run on TensorFlow before.

    Args:
        simulate_devices: replicas to make on the CPU instead, for tests.

    Raises:
        UserError: the number is impossible; TensorFlow was already running with other
            devices; TF_CONFIG is not what TensorFlow documents, or is set together with
            simulated devices.
    """
    # Another process, such as an evaluation, may use the same GPU.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    keep_compiled_programs()
    group = ProcessGroup.from_environment()
    if group.size > 1:
        if simulate_devices:
            raise UserError(
                f"--simulate_devices {simulate_devices} is for one process, and this "
                f"training has {group.size}; leave it out"
            )
        return group.connect()
    if simulate_devices > 1:
        _split_cpu(simulate_devices)
        devices = [f"CPU:{i}" for i in range(simulate_devices)]
    else:
        gpus = [] if simulate_devices else tf.config.list_logical_devices("GPU")
        devices = [gpu.name for gpu in gpus] or ["CPU:0"]
    # NCCL on GPUs; on the CPU, a reduction that always sums in the same order.
    on_cpu = devices[0].startswith("CPU")
    strategy = tf.distribute.MirroredStrategy(
        devices, tf.distribute.ReductionToOneDevice("CPU:0") if on_cpu else None
    )
    # Every replica has a batch for every step, so they need not ask one another.
    strategy.extended.experimental_enable_get_next_as_optional = False
    return strategy


def on_gpus(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether the replicas are on GPUs."""
    return any("GPU" in name for name in strategy.extended.worker_devices)


def devices_text(strategy: tf.distribute.Strategy) -> str:
    """Returns where the replicas are, such as "2 replicas on NVIDIA A100, TF32 on"."""
    replicas = quantity(strategy.num_replicas_in_sync, "replicas")
    if not on_gpus(strategy):
        return f"{replicas} on the CPU"
    names = {gpu.get("device_name", "an unknown GPU") for gpu in gpu_details()}
    has_tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
    return f"{replicas} on {', '.join(names)}, TF32 {'on' if has_tf32 else 'off'}"


def local_replicas(strategy: tf.distribute.Strategy) -> range:
    """Returns the ids of this process's replicas among those of all processes."""
    count = len(strategy.extended.worker_devices)
    start = ProcessGroup.from_strategy(strategy).index * count
    return range(start, start + count)


def distribute(
    strategy: tf.distribute.Strategy, parts: tf.data.Dataset
) -> tf.distribute.DistributedDataset:
    """Returns distributed batches: each replica of this process takes an element."""
    parts = untuned(parts)
    return strategy.distribute_datasets_from_function(lambda context: parts)


def batch_spec(
    strategy: tf.distribute.Strategy, aligned: bool = False, packed: bool = False
) -> dict[str, tf.TypeSpec]:
    """Returns the type of a distributed batch, whose arrays may have any shape.

    As the input signature of a step it keeps TensorFlow from retracing every shape.

    Args:
        strategy: see `distribute`.
        aligned: see `batch_signature`.
        packed: see `batch_signature`.
    """
    signature = batch_signature(aligned, packed)
    return distribute_batches(strategy, list, signature).element_spec


def distribute_batches(
    strategy: tf.distribute.Strategy,
    batches: Callable[[], Iterable[Batch]],
    signature: Mapping[str, tf.TypeSpec],
) -> tf.distribute.DistributedDataset:
    """Returns distributed batches of the same type as those of training.

    Args:
        strategy: see `distribute`.
        batches: returns the batch of each replica of this process in turn.
        signature: the type of a batch.
    """
    parts = tf.data.Dataset.from_generator(batches, output_signature=signature)
    return distribute(strategy, parts)


def _split_cpu(parts: int) -> None:
    """Makes the CPU appear as this many devices, or more."""
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
