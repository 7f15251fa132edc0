"""CTranslate2's model and its threads, which compute several batches at once."""

import collections
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import ctranslate2

from t2t_keras.devices import num_cores
from t2t_keras.errors import UserError, first_line
from t2t_keras.exporting.directory import checksums, require_checksum


class TranslatorPool:
    """A model with workers, each of which computes one batch at a time.

    Args:
        path: the directory of the export, which is intact.

    Attributes:
        model: the model.
        workers: the number of batches that are computed at once.

    Raises:
        UserError: CTranslate2 cannot load the model.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._checksums = dict(checksums(path))
        # One thread for each batch is as fast as what CTranslate2 recommends for files,
        # and is not slowed down by other processes. OMP_NUM_THREADS changes it.
        self._threads = int(os.environ.get("OMP_NUM_THREADS") or 1)
        self.workers = max(num_cores() // self._threads, 1)
        # One object for each call of `run` that has not ended.
        self._calls: set[object] = set()
        self._contents: dict[str, bytes] | None = None  # see `_files`
        self.model = self._load(self.workers)

    @property
    def num_idle(self) -> int:
        """The number of batches that idle workers can compute, at least 1.

        In `t2t serve`, other calls may use the other threads. CTranslate2's
        `num_active_batches` is not used: it may still count a batch that has ended, so
        the outputs of the same calls could differ by rounding.
        """
        return max(self.workers - len(self._calls), 1)

    def run(
        self,
        groups: Sequence[Sequence[int]],
        submit: Callable[[Sequence[int]], list[ctranslate2.AsyncTranslationResult]],
    ) -> Iterator[tuple[Sequence[int], list[ctranslate2.TranslationResult]]]:
        """Yields each batch with its results while later batches are computed.

        Args:
            groups: the indices of the sources of each batch.
            submit: begins to compute a batch.
        """
        call = object()
        self._calls.add(call)
        waiting: collections.deque[list[ctranslate2.AsyncTranslationResult]]
        waiting = collections.deque()
        try:
            for i, rows in enumerate(groups):
                # One more than there are idle threads. CTranslate2 runs the batches of
                # all calls in order, so another call would wait for a longer queue.
                limit = max(self.workers - len(self._calls) + 2, 1)
                waiting += map(submit, groups[i + len(waiting) : i + limit])
                yield rows, [result.result() for result in waiting.popleft()]
        finally:
            self._calls.remove(call)

    def seeded_model(self, seed: int) -> ctranslate2.Translator:
        """Returns another model, with one worker, whose samples depend on the seed.

        Raises:
            UserError: a file has changed since the pool was made.
        """
        # A thread is seeded at its first draw: a new model has new threads.
        ctranslate2.set_random_seed(seed)
        return self._load(1, self._files())

    def _files(self) -> dict[str, bytes]:
        """Returns the files of the model, which are read once, for samples."""
        if self._contents is None:
            vocabularies = self._path.glob("*vocabulary.json")
            names = ["config.json", "model.bin", *(file.name for file in vocabularies)]
            try:
                contents = {name: (self._path / name).read_bytes() for name in names}
            except OSError as error:
                raise UserError(
                    f"cannot read {error.filename}: {error.strerror}; "
                    "copy or export the model again"
                ) from None
            for name, content in contents.items():
                require_checksum(self._path, name, content, self._checksums)
            self._contents = contents
        return self._contents

    def _load(
        self, workers: int, files: dict[str, bytes] | None = None
    ) -> ctranslate2.Translator:
        """Loads the model from contents of its files, or from the files."""
        try:
            return ctranslate2.Translator(
                str(self._path),
                inter_threads=workers,
                intra_threads=self._threads,
                files=files,
            )
        except (RuntimeError, ValueError) as error:
            raise UserError(
                f"CTranslate2 cannot load {self._path}: {first_line(error)}; "
                "export the model again"
            ) from None
