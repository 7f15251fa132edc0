"""For the whole test process: settings, made before TensorFlow does anything; data."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import pytest

from t2t_keras.training.strategy import make_strategy

# Up to eight replicas on the CPU; TensorFlow cannot split it later.
make_strategy(simulate_devices=8)


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """A data directory of `translate_text`, to be read only."""
    from small_data import small_data

    directory = tmp_path_factory.mktemp("data")
    small_data(directory)
    return directory
