"""Keras callbacks in a training: they get the records of `metrics.jsonl` as logs."""

from collections.abc import Sequence
from typing import Any

import keras

from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams
from t2t_keras.training.optimizer import learning_rate


class Callbacks:
    """Calls Keras callbacks as `fit(steps_per_epoch=eval_every)` does.

    An epoch has `eval_every` steps and ends with the evaluation on dev. A batch "ends"
    at each report, with the means since the last one.

    Args:
        callbacks: the callbacks, as `keras.Model.fit` takes them.
        model: the model that is trained. While it trains, `model.optimizer` has the
            step and the learning rate for callbacks that log them; `TrainStep` makes
            the updates.
        hparams: the hyper-parameters.
        eval_every: number of steps in an epoch.
        has_dev: whether epochs end with an evaluation.
    """

    def __init__(
        self,
        callbacks: Sequence[keras.callbacks.Callback],
        model: keras.Model,
        hparams: HParams,
        eval_every: int,
        has_dev: bool,
    ) -> None:
        self._callbacks = callbacks
        self._model = model
        self._eval_every = eval_every
        self._has_dev = has_dev
        self._epoch, self._has_begun = -1, False
        self._logs: dict[str, float] = {}  # of the last report and evaluation
        if not callbacks:
            return
        model.optimizer = keras.optimizers.Adam(
            learning_rate(hparams, 1),
            hparams.adam_beta1,
            hparams.adam_beta2,
            hparams.adam_epsilon,
        )
        epochs = -(-hparams.train_steps // eval_every)
        params = {"epochs": epochs, "steps": eval_every, "verbose": 0}
        self._call("set_params", params)
        self._call("set_model", model)

    @property
    def stop_training(self) -> bool:
        """Whether a callback has set `model.stop_training`."""
        return bool(self._callbacks) and self._model.stop_training

    def begin(self) -> None:
        """Begins a training, or resumes it."""
        self._model.stop_training = False
        self._call("on_train_begin", {})

    def record(self, step: int, kind: str, metrics: dict[str, float]) -> None:
        """Passes on a record of `metrics.jsonl`; the arguments are its fields."""
        if not self._callbacks:
            return
        self._model.optimizer.iterations.assign(step)
        epoch = (step - 1) // self._eval_every
        # That of the data; callbacks have their own "epoch".
        metrics = {name: x for name, x in metrics.items() if name != "epoch"}
        if kind in ("train", "dev") and epoch != self._epoch:
            self._end_epoch()  # without dev, there may be no report at its last step
            self._epoch, self._has_begun = epoch, True
            self._call("on_epoch_begin", epoch, {})
        if kind == "train":
            self._logs = dict(metrics)
            self._model.optimizer.learning_rate = metrics["learning_rate"]
            self._call("on_train_batch_begin", step - 1, {})
            self._call("on_train_batch_end", step - 1, metrics)
        elif kind == "dev":
            self._call("on_test_begin", {})
            self._call("on_test_end", metrics)
            self._logs |= {f"val_{name}": value for name, value in metrics.items()}
        else:  # after the last step: of the averages
            self._logs |= {f"{kind}_{name}": x for name, x in metrics.items()}
        if kind == "dev" or not (self._has_dev or step % self._eval_every):
            self._end_epoch()

    def end(self) -> None:
        """Ends the training; the logs are the last ones, with those of averages."""
        self._call("on_train_end", self._logs)

    def _end_epoch(self) -> None:
        if self._has_begun:
            self._has_begun = False
            self._call("on_epoch_end", self._epoch, self._logs)

    def _call(self, method: str, *args: Any) -> None:
        """Calls a method of every callback.

        Raises:
            UserError: it raised an error, or it has set the learning rate.
        """
        for callback in self._callbacks:
            name = f"callback {type(callback).__name__}"
            rate = float(self._model.optimizer.learning_rate)
            copied = (dict(x) if isinstance(x, dict) else x for x in args)
            try:
                getattr(callback, method)(*copied)
            except Exception as error:
                raise UserError(
                    f"{name}: {method}: {type(error).__name__}: {error}"
                ) from error
            if float(self._model.optimizer.learning_rate) != rate:
                raise UserError(
                    f"{name}: it sets the learning rate, which the hyper-parameters "
                    "learning_rate and schedule decide; leave it out"
                )
