"""The models of the server: versions are loaded, served, replaced and unloaded."""

import asyncio
import contextlib
import dataclasses
import functools
import gc
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from starlette.exceptions import HTTPException

from t2t_keras.console import busy, say
from t2t_keras.errors import UserError, first_line

from .metrics import Metrics
from .queue import Batcher, Overloaded
from .requests import Key, Limits, Outputs, Texts, cheap_work
from .served_model import ServedModel
from .versions import FixedModel, VersionFolder

# Where the versions of a model are.
Source: TypeAlias = FixedModel | VersionFolder


@dataclasses.dataclass(eq=False)
class Servable:
    """A version of a model that is loaded, and its queue.

    Attributes:
        name: its name.
        version: its version.
        model: the model.
        batcher: its queue.
        requests: the number of requests that it has not answered yet.
        is_unused: set while there are no such requests.
    """

    name: str
    version: int
    model: ServedModel
    batcher: Batcher
    requests: int = 0
    is_unused: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    @property
    def labels(self) -> tuple[str, str]:
        """The name and the version, as in the metrics."""
        return self.name, str(self.version)

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Keeps the model loaded during the `with` block."""
        self.requests += 1
        self.is_unused.clear()
        try:
            yield
        finally:
            self.requests -= 1
            if not self.requests:
                self.is_unused.set()


class ModelManager:
    """The models, each with the queue of its newest version.

    Args:
        models: for each name, where its versions are.
        limits: the limits.
        metrics: measures batches and queues.
        poll_seconds: the time between two looks for other versions; 0: only at the
            start.

    Attributes:
        served: the version of each model that is served.
        states: the state and the error of each version of each model, as TensorFlow
            Serving calls them.
        is_stopping: whether further requests are refused.
        failure: why a model cannot be served; None: all can so far.
        on_failure: called when `failure` is set.
        on_ready: called when all models are loaded.
    """

    def __init__(
        self,
        models: Mapping[str, Source],
        limits: Limits,
        metrics: Metrics,
        poll_seconds: float,
    ) -> None:
        self._sources = dict(models)
        self._limits = limits
        self._metrics = metrics
        self._poll_seconds = poll_seconds
        # With those of models that are being unloaded.
        self._batchers: set[Batcher] = set()
        self.served: dict[str, Servable] = {}
        self.states: dict[str, dict[int, tuple[str, str]]] = {}
        for name, source in models.items():
            self.states[name] = {}
            metrics.watch_versions(name, source)
        self.is_stopping = False
        self.failure: BaseException | None = None
        self.on_failure: Callable[[], None] = lambda: None
        self.on_ready: Callable[[], None] = lambda: None

    @property
    def is_ready(self) -> bool:
        """Whether every model is loaded and has translated a sentence."""
        return len(self.served) == len(self._sources)

    @property
    def refused(self) -> dict[str, dict[int, str]]:
        """Why versions newer than the served one are not served, by model."""
        by_model = {name: source.refused for name, source in self._sources.items()}
        return {name: reasons for name, reasons in by_model.items() if reasons}

    async def load(self) -> None:
        """Loads one model after another."""
        for name in self._sources:
            with busy(f"loading {name}"):
                is_loaded = await self._load_first(name)
            if not is_loaded:
                return
        self.on_ready()

    async def _load_first(self, name: str) -> bool:
        """Loads a model; returns whether it is served."""
        failure: Exception = UserError(f"--model: {name} has no complete version")
        while name not in self.served:
            if self.is_stopping:
                return False
            try:
                if not await self.poll(name):
                    self.failure = failure
                    self.on_failure()
                    return False
            except Exception as error:
                failure = error  # raised unless an earlier version is intact
        return True

    async def poll_all(self, loading: asyncio.Task[None]) -> None:
        """Looks for other versions every `poll_seconds`, once the models are loaded."""
        await asyncio.wait([loading])
        while self._poll_seconds:
            await asyncio.sleep(self._poll_seconds)
            for name in self.served:
                with contextlib.suppress(Exception):  # the next poll reports it
                    await self.poll(name)

    async def poll(self, name: str) -> bool:
        """Serves the newest version of a model, and unloads the previous one.

        The version translates a sentence before it is served. No request is lost: the
        previous version answers those that it has.

        Returns:
            Whether the served version has changed.

        Raises:
            Exception: the version cannot be loaded. The previous one is still served.
        """
        source = self._sources[name]
        served = self.served.get(name)
        served_version = None if served is None else served.version
        version = await asyncio.to_thread(source.find, served_version)
        states = self.states[name]
        for refused, reason in source.refused.items():
            states[refused] = ("END", reason)
        if version is None:
            return False
        states[version] = ("LOADING", "")
        try:
            model = await asyncio.to_thread(source.load, version)
            # This traces what most requests call.
            rows: list[dict[str, str]] = [{"texts": "A test ."}]
            await asyncio.to_thread(model.predict, "translate", rows, {})
        except Exception as error:
            source.fail(version, error)
            states[version] = ("END", first_line(error) or type(error).__name__)
            raise
        self._serve(name, version, model)
        del model
        if served is not None:
            say(f"t2t serve: version {version} of {name} replaces {served.version}")
            await self._unload(served)
            del served
            await asyncio.to_thread(gc.collect)  # graphs have cycles
        return True

    def _serve(self, name: str, version: int, model: ServedModel) -> None:
        """Makes the queue of a version; further requests are sent to it."""
        labels = name, str(version)

        def run(
            key: Key, rows: list[Texts], is_wanted: Callable[[], bool]
        ) -> list[Outputs]:
            return model.predict(key[0], rows, dict(key[1]), is_wanted)

        observe = functools.partial(self._metrics.observe_batch, labels)
        # On two cores, 8 to 40% more texts are served with two batches at a time; but
        # 13% fewer by an engine that divides each batch itself.
        threads = 1 if model.divides_batches else 2
        max_cheap_work = cheap_work(model.defaults["beam_size"])
        batcher = Batcher(run, self._limits, observe, max_cheap_work, threads)
        self._metrics.add_queue(labels, batcher)
        self._batchers.add(batcher)
        self.states[name][version] = ("AVAILABLE", "")
        self.served[name] = Servable(name, version, model, batcher)

    async def _unload(self, served: Servable) -> None:
        """Drops a version when all of its requests are answered."""
        states = self.states[served.name]
        states[served.version] = ("UNLOADING", "")
        while served.requests:
            await served.is_unused.wait()
        await asyncio.to_thread(served.batcher.close)
        self._batchers.remove(served.batcher)
        self._metrics.remove_queue(served.labels)
        states[served.version] = ("END", "")

    def find(self, name: str, version: int | None) -> Servable:
        """Returns the model of a URL.

        Raises:
            HTTPException: there is no such model or version.
            Overloaded: the model is loading.
        """
        servable = (
            f"Latest({name})" if version is None else f"Specific({name}, {version})"
        )
        missing = f"Servable not found for request: {servable}"
        if name not in self._sources:
            names = ", ".join(self._sources)
            raise HTTPException(404, f"{missing}; the models are: {names}")
        if name not in self.served:
            raise Overloaded("the model is loading; try again later")
        served = self.served[name]
        if version not in (None, served.version):
            raise HTTPException(404, f"{missing}; its version is {served.version}")
        return served

    def stop(self) -> None:
        """Refuses further requests."""
        self.is_stopping = True
        for batcher in self._batchers:
            batcher.close(wait=False)

    async def close(self) -> None:
        """Runs what still waits, after `stop`."""
        for batcher in [*self._batchers]:
            await asyncio.to_thread(batcher.close)
