"""An opened model: what a runtime returns and a worker runs, with the texts of its failures.

A runtime turns a file into a `Model`; from then on nobody asks what kind of file it was.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from ringbatch.engine.devices.port import Device
from ringbatch.engine.models.runtime_options import RuntimeOptions
from ringbatch.shm.errors import StartupError
from ringbatch.shm.forward_envelope import Envelope
from ringbatch.shm.slot import Status
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.texts import Generator, Tokens
from ringbatch.shm.upstreams import OwnUpstreams


class InvalidInput(Exception):
    """Raised by a model for an input it cannot take; the request is answered with status 400.

    The text goes to the client.
    """


class ServerFailed(Exception):
    """The server that runs the model did not give what it was asked for; the text is for clients.

    Attributes:
        status: what the requests are answered with.
        isolates: whether one request of a batch may be to blame, so that each is asked for alone.
    """

    def __init__(self, status: Status, text: str, *, isolates: bool = False) -> None:
        super().__init__(text)
        self.status = status
        self.isolates = isolates


def blames_nobody(failure: BaseException) -> bool:
    """Return whether no request of the batch can be to blame, so that none is worth another run."""
    return isinstance(failure, ServerFailed) and not failure.isolates


def is_about_the_input(failure: BaseException) -> bool:
    """Return whether the error concerns only this request."""
    if isinstance(failure, ServerFailed):
        return failure.status is Status.SERVER_ANSWERED
    return isinstance(failure, InvalidInput)


@dataclass(frozen=True, slots=True)
class StepFunctions:
    """Functions of a model in steps, whose rows join and end between any two steps.

    Attributes:
        begin: takes the arguments of `Model.predict`, for the rows that join, and returns a list
            with a state for each of them; None for one that goes on behind its last part.
        step: takes the list of the states of live rows. It returns a pair: outputs, as `predict`
            does, with the next part of each row, and for each row whether it has ended.
        end: takes the state of each row that leaves, and the reason.
        places: of a model that makes no states, and is given the numbers of its rows' places
            instead: how many places there are. `begin` then takes the numbers as `rows`, an array,
            and returns None, or for each row whether nothing is missing behind its last part.
            `step` takes such an array, and `end` a number. None for a model that makes states.
        repeatable: whether a step that raises leaves all states as they were, so that it can be
            run again for a part of the rows.
        resumes: as in `ringbatch.shm.model_spec.ModelSpec`.
    """

    begin: Callable[..., Any]
    step: Callable[[Any], Any]
    end: Callable[[Any, str], object]
    repeatable: bool = False
    resumes: tuple[tuple[str, str], ...] = ()
    places: int | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """A model as a worker runs it.

    Attributes:
        inputs: empty for an untyped model.
        outputs: empty exactly if `inputs` is.
        load: to be called once, before `predict`.
        predict: takes an array for each input, with the batch dimension in front if the model
            has one, and returns the outputs as `ringbatch.engine.worker.tensors.Scatterer` takes
            them; of an untyped model, takes and returns a list of JSON values.
        remote: asks the server that runs the model, if requests stand in slots as
            `ringbatch.shm.forward_envelope` has them. It gets them in place of `predict`.
        release: to be called at the end, with True if nobody will want the model again; else what
            is held elsewhere may stay for the next worker.
        asks: whether `predict` takes one argument more, the last: a `Request` for each row.
        share: to be called once with what workers know of the servers that run it; None if no
            other server does.
        tokens: how clients' texts become tokens, which `inputs` then are; None if they send inputs.
        cost: what one instance of an untyped model costs, or one row of a model in steps, of which
            it takes the inputs; None if its file does not say.
        in_parts: whether `predict` returns an iterator of outputs, each a part of the answer, or
            the model works in steps.
        steps: the functions of a model in steps, which has no `predict` of its own.
        generator: how clients' texts become its inputs, and its outputs texts; None for a model
            that generates no texts.
        device: what holds it, if that can take rows out of requests' memory by itself; None if
            `predict` is the only way to run it.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    load: Callable[[], Any]
    predict: Callable[..., Any]
    remote: "Remote | None" = None
    release: Callable[[bool], object] = lambda _unwanted: None
    share: Callable[[OwnUpstreams], object] | None = None
    asks: bool = False
    tokens: Tokens | None = None
    cost: Callable[..., Any] | None = None
    in_parts: bool = False
    steps: StepFunctions | None = None
    generator: Generator | None = None
    device: Device | None = None

    @property
    def in_steps(self) -> bool:
        """True if rows join and end between any two steps."""
        return self.steps is not None

    @property
    def function(self) -> str:
        """Name of the function that returns its outputs, for messages."""
        return "predict" if self.steps is None else "step"

    @property
    def numbered(self) -> bool:
        """True if it is given the numbers of its rows' places, in place of states."""
        return self.steps is not None and self.steps.places is not None

    @property
    def resumes(self) -> tuple[tuple[str, str], ...]:
        """Inputs that take the parts so far; as in `ringbatch.shm.model_spec.ModelSpec`."""
        return () if self.steps is None else self.steps.resumes


class Remote(Protocol):
    """A model server that answers batches of KServe's V1."""

    def predictions(
        self, asked: Envelope, lists: Sequence[bytes], rows: Sequence[int], until_ns: int
    ) -> list[bytes]:
        """Ask for several requests at once.

        Args:
            asked: path, headers and surrounding text that the requests have in common.
            lists: the instances of each, as the JSON text of a list.
            rows: how many these are.
            until_ns: the deadline, on the monotonic clock.

        Returns:
            The predictions of each, as the JSON text of a list.

        Raises:
            ServerFailed: there are none; says why.
        """


class RestartWorker(SystemExit):
    """Raised by a model, or its runtime, that can answer no more in this process.

    The worker ends with the text in the log, and another one takes its place; the requests of the
    batch run again there. It is no `Exception`, so a model that catches these lets it pass. Any
    other SystemExit of a model is a failure of the request.
    """


def raise_lost(why: str, blames_batch: bool) -> NoReturn:
    """Raise, as the process that holds the model elsewhere is gone."""
    raise RestartWorker(why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(RuntimeOptions):
    """Options of a runtime beside the path.

    Attributes:
        threads: that one run may use.
        name: of the model.
        content: the file's content, if another file lies at its path by now.
        lost: ends the process, because the actor that holds the model is gone; it takes the reason,
            and whether a batch may be to blame.
        waits: is called if a model has no place elsewhere yet.
    """

    threads: int
    name: str = ""
    content: Path | None = None
    lost: Callable[[str, bool], NoReturn] = raise_lost
    waits: Callable[[], object] = lambda: None

    def readable(self, path: Path) -> Path:
        """Return the path at which the content of the model file at `path` can be read."""
        return self.content or path


@contextmanager
def refusing(path: Path | str, during: str = "") -> Iterator[None]:
    """Guard foreign code at start: turn its exceptions into a `StartupError` with words.

    Args:
        path: the model file, or the address of a model server.
        during: words for the step under way, if the line of code alone does not tell it.
    """
    try:
        yield
    except (StartupError, RestartWorker):
        raise
    except BaseException as error:
        raise StartupError(failure(path, error, during)) from error


def failure(path: Path | str, error: BaseException, during: str = "") -> str:
    """Return an exception for the operator: the file, its line, and the text, in one line."""
    phase = f"{during}: " if during else ""
    return f"{path}: {_where(path, error)}{phase}{_text(error)}"


def error_text(error: BaseException) -> str:
    """Return the text of an exception of foreign code, even if its own `str` fails."""
    try:
        # Of a subclass of str, the characters alone.
        return "".join((str(error), ""))
    except Exception:
        return ""


def _text(error: BaseException) -> str:
    text = " ".join(error_text(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _where(path: Path | str, error: BaseException) -> str:
    frame, line = error.__traceback__, 0
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == str(path):
            line = frame.tb_lineno
        frame = frame.tb_next
    return f"line {line}: " if line else ""
