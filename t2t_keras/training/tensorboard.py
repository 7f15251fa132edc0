"""TensorBoard's events: a scalar for each metric of a report or an evaluation."""

from pathlib import Path

import tensorflow as tf

from t2t_keras.training.hooks import Hook


class TensorBoard(Hook):
    """Writes the metrics of a training for TensorBoard."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._events: tf.summary.SummaryWriter | None = None

    def on_report(self, step: int, metrics: dict[str, float]) -> None:
        """Writes `train/NAME` for each metric."""
        self._write(step, "train", metrics)

    def on_eval(self, step: int, label: str, metrics: dict[str, float]) -> None:
        """Writes `LABEL/NAME` for each metric."""
        self._write(step, label, metrics)

    def close(self) -> None:
        """Closes the event file."""
        if self._events:
            self._events.close()

    def _write(self, step: int, label: str, metrics: dict[str, float]) -> None:
        self._events = self._events or tf.summary.create_file_writer(str(self._run_dir))
        with self._events.as_default(step=step):
            for name, value in metrics.items():
                # TensorBoard keeps float32, which a perplexity may overflow.
                tf.summary.scalar(f"{label}/{name}", tf.constant(value, tf.float64))
        self._events.flush()
