"""What the processes on nodes get of the environments of the user and of Ray."""

from t2t_keras.plugins.ray.process_environment import (
    process_environment,
    shared_variables,
)


def test_variables_of_the_user_but_not_of_this_machine():
    shared = {
        **{"TF_DETERMINISTIC_OPS": "1", "XLA_FLAGS": "--x", "KERAS_BACKEND": "jax"},
        **{"T2T_A": "a", "WANDB_MODE": "offline", "OMP_NUM_THREADS": "3"},
    }
    local = {"HOME": "/h", "PATH": "/p", "CUDA_VISIBLE_DEVICES": "0", "TF_CONFIG": "{}"}
    assert shared_variables(shared | local) == shared


def test_what_ray_and_its_start_have_set_is_left_out(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TF_CONFIG", "{}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    environment = process_environment({"T2T_A": "a"})
    assert (environment["CUDA_VISIBLE_DEVICES"], environment["T2T_A"]) == ("2", "a")
    assert not environment.keys() & {"OMP_NUM_THREADS", "TF_CONFIG"}
    variables = {"OMP_NUM_THREADS": "3", "TF_CONFIG": "{1}"}
    assert process_environment(variables).items() >= variables.items()
