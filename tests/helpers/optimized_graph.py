"""What TensorFlow's graph optimizer makes of a function on the CPU."""

from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.grappler import tf_optimizer

CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


def optimized_nodes(
    function: Any, *inputs: tf.TensorSpec
) -> list[tf.compat.v1.NodeDef]:
    """Returns the nodes of the `tf.function` after all default optimizations.

    The optimizer is called by itself: the graphs that TensorFlow records while a
    function runs are all that the process ran, in any thread, and fast tests run
    unoptimized graphs.
    """
    graph = function.get_concrete_function(*inputs).graph
    meta_graph = tf.compat.v1.train.export_meta_graph(
        graph_def=graph.as_graph_def(), graph=graph
    )
    for node in meta_graph.graph_def.node:
        node.device = CPU  # oneDNN's fusions leave nodes without a device alone
    fetches = meta_graph.collection_def["train_op"].node_list.value
    fetches.extend(output.name for output in graph.outputs)
    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.min_graph_nodes = -1  # small graphs also
    return list(tf_optimizer.OptimizeGraph(config, meta_graph).node)
