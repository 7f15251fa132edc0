"""Keras callbacks in a training: their logs are the records of `metrics.jsonl`."""

from collections.abc import Sequence

import keras

from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams
from t2t_keras.training.hooks import Hook
from t2t_keras.training.optimizer import learning_rate


class Callbacks(Hook):
    """Calls Keras callbacks as `fit(steps_per_epoch=eval_every)` does.

    An epoch has `eval_every` steps and ends with the evaluation on dev. A batch "ends"
    at each report, with the means since the last one.

    Args:
        callbacks: the callbacks, as `keras.Model.fit` takes them; at least one.
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
        self._epoch = -1
        self._is_in_epoch = False
        # The logs of the last report and evaluation.
        self._logs: dict[str, float] = {}
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

    def on_train_begin(self) -> None:
        """Begins a training, or resumes it."""
        self._model.stop_training = False
        self._call("on_train_begin", {})

    def on_report(self, step: int, metrics: dict[str, float]) -> None:
        """Ends a batch of Keras."""
        self._set_step(step)
        # Callbacks count epochs in another way than the metric "epoch".
        logs = {name: value for name, value in metrics.items() if name != "epoch"}
        self._begin_epoch(step)
        self._logs = logs
        self._model.optimizer.learning_rate = metrics["learning_rate"]
        self._call("on_train_batch_begin", step - 1, {})
        self._call("on_train_batch_end", step - 1, logs)
        if not self._has_dev and step % self._eval_every == 0:
            self._end_epoch()

    def on_eval(self, step: int, label: str, metrics: dict[str, float]) -> None:
        """Ends an epoch with the evaluation on dev; keeps those of averages."""
        self._set_step(step)
        if label != "dev":
            self._logs |= _with_prefix(label, metrics)
            return
        self._begin_epoch(step)
        self._call("on_test_begin", {})
        self._call("on_test_end", metrics)
        # Keras's callbacks watch "val_loss" unless they are told otherwise.
        self._logs |= _with_prefix("val", metrics | {"loss": metrics["nll"]})
        self._end_epoch()

    def stop_reason(self) -> str | None:
        """Returns "callback" if a callback has set `model.stop_training`."""
        return "callback" if self._model.stop_training else None

    def on_train_end(self) -> None:
        """Ends the training; the logs are the last ones, with those of averages."""
        self._call("on_train_end", self._logs)

    def _set_step(self, step: int) -> None:
        self._model.optimizer.iterations.assign(step)

    def _begin_epoch(self, step: int) -> None:
        epoch = (step - 1) // self._eval_every
        if epoch == self._epoch:
            return
        # Without dev, there may have been no report at the last step of an epoch.
        self._end_epoch()
        self._epoch = epoch
        self._is_in_epoch = True
        self._call("on_epoch_begin", epoch, {})

    def _end_epoch(self) -> None:
        if self._is_in_epoch:
            self._is_in_epoch = False
            self._call("on_epoch_end", self._epoch, self._logs)

    def _call(self, method: str, *args: object) -> None:
        """Calls a method of every callback.

        Raises:
            UserError: it raised an error, or it has set the learning rate.
        """
        for callback in self._callbacks:
            name = f"callback {type(callback).__name__}"
            rate = float(self._model.optimizer.learning_rate)
            copies = (dict(x) if isinstance(x, dict) else x for x in args)
            try:
                getattr(callback, method)(*copies)
            except Exception as error:
                raise UserError(
                    f"{name}: {method}: {type(error).__name__}: {error}"
                ) from error
            if float(self._model.optimizer.learning_rate) != rate:
                raise UserError(
                    f"{name}: it sets the learning rate, which the hyper-parameters "
                    "learning_rate and schedule decide; leave it out"
                )


def _with_prefix(prefix: str, metrics: dict[str, float]) -> dict[str, float]:
    return {f"{prefix}_{name}": value for name, value in metrics.items()}
