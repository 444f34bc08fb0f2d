"""What lies between a runtime and the worker: a model that was opened, and the words for failures.

A runtime turns a file into a `Model`; from then on nobody asks what kind of file it was.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringbatch.shm.errors import StartupError
from ringbatch.shm.tensor import Tensor


class InvalidInput(Exception):
    """Raised by a model for an input it cannot take; the request is answered with status 400.

    The text goes to the client.
    """


@dataclass(frozen=True, slots=True)
class Model:
    """A model as a worker runs it.

    Attributes:
        inputs: empty for an untyped model.
        outputs: empty exactly where `inputs` is.
        load: to be called once, before `predict`.
        predict: takes an array for each input, with the batch dimension in front where the model
            has one, and returns the outputs as `ringbatch.engine.tensors.Scatterer` takes them; of
            an untyped model, takes and returns a list of JSON values.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    load: Callable[[], Any]
    predict: Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a runtime is told beside the path.

    Attributes:
        max_batch_size: the cap on instances in one batch; 0 for a model whose tensors have no
            batch dimension.
        threads: that one run may use.
        device: ``cpu``, or ``cuda:N``.
        trusted_types: full names of types that a file may hold beyond those known to be safe.
        trust_pickle: whether a file may run code while it is read.
    """

    max_batch_size: int
    threads: int
    device: str = "cpu"
    trusted_types: Sequence[str] = ()
    trust_pickle: bool = False


@contextmanager
def refusing(path: Path, during: str = "") -> Iterator[None]:
    """Around somebody else's code at start: what it raises becomes a `StartupError` in words.

    Args:
        path: the model file.
        during: what is being done, where the line alone does not say it.
    """
    try:
        yield
    except StartupError:
        raise
    except (Exception, SystemExit) as error:
        raise StartupError(failure(path, error, during)) from error


def failure(path: Path, error: BaseException, during: str = "") -> str:
    """What to tell the operator of an exception: the file, its line, and the text, in one line."""
    what = f"{during}: " if during else ""
    return f"{path}: {_where(path, error)}{what}{_text(error)}"


def _text(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _where(path: Path, error: BaseException) -> str:
    frame, line = error.__traceback__, 0
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == str(path):
            line = frame.tb_lineno
        frame = frame.tb_next
    return f"line {line}: " if line else ""
