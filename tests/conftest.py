"""Settings for the whole test process, made before TensorFlow does anything."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

from t2t_keras.training.strategy import make_strategy

# Up to eight replicas on the CPU; TensorFlow cannot split it later.
make_strategy(simulate_devices=8)
