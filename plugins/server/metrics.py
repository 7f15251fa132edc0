"""What the server measures, for Prometheus."""

from collections.abc import Sized
from typing import TYPE_CHECKING

import prometheus_client as prometheus
from starlette.responses import Response

if TYPE_CHECKING:
    from .model_manager import Source

# The name and the version of a model.
_MODEL = ("model", "version")


class Metrics:
    """Counts and times requests, and the batches of each version of a model."""

    def __init__(self) -> None:
        registry = self._registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=registry)
        self._requests = prometheus.Counter(
            "t2t_requests", "Requests", ["endpoint", "status"], registry=registry
        )
        self._model_requests = prometheus.Counter(
            "t2t_model_requests", "Requests", [*_MODEL, "status"], registry=registry
        )
        self._request_seconds = prometheus.Histogram(
            "t2t_request_seconds", "Until the answer", ["endpoint"], registry=registry
        )
        self._batch_seconds = prometheus.Histogram(
            "t2t_batch_seconds", "Time of a batch", _MODEL, registry=registry
        )
        self._batch_sentences = prometheus.Summary(
            "t2t_batch_sentences", "Sentences in a batch", _MODEL, registry=registry
        )
        self._queue_sentences = prometheus.Gauge(
            "t2t_queue_sentences", "Sentences that wait", _MODEL, registry=registry
        )
        self._refused_versions = prometheus.Gauge(
            "t2t_refused_versions",
            "Newer versions that cannot be served",
            ["model"],
            registry=registry,
        )

    def response(self) -> Response:
        """Returns the metrics in the text format of Prometheus."""
        text = prometheus.generate_latest(self._registry)
        return Response(text, media_type=prometheus.CONTENT_TYPE_LATEST)

    def count_request(
        self,
        endpoint: str,
        status: int,
        seconds: float,
        model: tuple[str, str] | None,
    ) -> None:
        """Counts a request, with the time until its answer.

        Args:
            endpoint: the name of the endpoint; "none": there was none.
            status: the status of the answer.
            seconds: the time.
            model: the name and the version of the model that was asked, if any.
        """
        self._requests.labels(endpoint, status).inc()
        self._request_seconds.labels(endpoint).observe(seconds)
        if model:
            self._model_requests.labels(*model, status).inc()

    def observe_batch(self, model: tuple[str, str], size: int, seconds: float) -> None:
        """Counts a batch with its sentences and its time."""
        self._batch_sentences.labels(*model).observe(size)
        self._batch_seconds.labels(*model).observe(seconds)

    def watch_versions(self, model: str, source: "Source") -> None:
        """Shows the number of newer versions that cannot be served."""
        gauge = self._refused_versions.labels(model)
        gauge.set_function(lambda: len(source.refused))

    def add_queue(self, model: tuple[str, str], queue: Sized) -> None:
        """Shows the number of waiting sentences, until `remove_queue`."""
        self._queue_sentences.labels(*model).set_function(lambda: len(queue))

    def remove_queue(self, model: tuple[str, str]) -> None:
        """Forgets the queue of a version that is unloaded."""
        self._queue_sentences.remove(*model)
