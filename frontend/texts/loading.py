"""A tokenizer's files, which frontends load once, by a thread if there is time."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Generic, TypeVar

from ringbatch.shm.errors import ModelNotReady

log = logging.getLogger("ringbatch.frontend")

T = TypeVar("T")


class Unusable(Exception):
    """Files of a model cannot be used; the text is for the operator."""


class LoadedOnce(Generic[T]):
    """A value made of a tokenizer's files, by the thread that needs it first.

    Attributes:
        value: None until it is loaded.
        obstacle: why it cannot be loaded, in words for clients; empty if no reason is known.

    Args:
        model: the name of the model.
        make: loads it; raises `Unusable` if it cannot.
    """

    def __init__(self, model: str, make: Callable[[], T]) -> None:
        self.value: T | None = None
        self.obstacle = ""
        self._model = model
        self._make = make
        self._loading = threading.Lock()

    def load(self) -> T:
        """Return the value, loading it if that is not done; by any thread.

        Raises:
            ModelNotReady: it cannot be loaded; the log says why.
        """
        if self.value is None:
            with self._loading:
                if self.value is None:
                    self.value = self._loaded()
        return self.value

    def load_soon(self, threads: Callable[[], Executor]) -> None:
        """Have a thread load it. A request that needs it earlier loads it, or waits for the thread.

        If the system has no thread now, the first request loads it.
        """
        with suppress(RuntimeError):
            threads().submit(self.try_to_load)

    def try_to_load(self) -> None:
        """Load it; log the reason if it cannot be loaded."""
        try:
            self.load()
        except ModelNotReady as error:
            log.error("frontend: %s", error)

    def _loaded(self) -> T:
        try:
            value = self._make()
        except Unusable as error:
            log.error("frontend: model %s: %s", self._model, error)
            self.obstacle = "its tokenizer cannot be used; the log says why"
            raise ModelNotReady(f'model "{self._model}" is not ready: {self.obstacle}') from None
        self.obstacle = ""
        return value
