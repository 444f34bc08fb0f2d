"""Errors of requests and of starts, one class for each cause.

The text of a `RequestError` is written for the client: it names what is wrong with the request
and never a path, a process or a name in shared memory. The text of a `StartupError` is written
for the operator: what was found, and what would be right. Which HTTP status each of them gets is
decided in one table, `ringbatch.frontend.codec.outcome`.
"""

import errno
from typing import Final

_SHORTAGES: Final = {
    errno.EMFILE: "its supervisor may have no more files open (ulimit -n)",
    errno.ENFILE: "this host may have no more files open",
    errno.EAGAIN: "no more processes are allowed (pids.max, ulimit -u)",
    errno.ENOMEM: "there is no memory for it",
}

NO_PLACE_YET: Final = errno.EXFULL
"""Stands for no shortage of the kernel's: a process runs, and waits for a place in a cluster."""


class RingbatchError(Exception):
    """Base of everything below; never raised itself."""


class StartupError(RingbatchError):
    """The engine cannot run here as configured."""


class SegmentNotReady(StartupError):
    """The segment exists, but its creator has not finished it."""


class SegmentGone(StartupError):
    """The segment, or what belongs to it, has no name any more, or its engine has ended."""


class LayoutMismatch(StartupError):
    """The segment was made by another version or with other limits."""


class NoFreeLane(StartupError):
    """Every lane of the segment is held by a living frontend."""


class RequestError(RingbatchError):
    """Base of the reasons for which one request is refused or fails."""


class InvalidRequest(RequestError):
    """The request itself is wrong; sent again unchanged, it fails again."""


class Unauthenticated(RequestError):
    """The request has no API key of the server's."""


class ModelNotFound(RequestError):
    """No model of that name or version is configured."""


class ModelNotReady(RequestError):
    """The model is configured, but no worker holds a loaded copy of it now.

    Attributes:
        retry_after_s: when the request may be sent again, in whole seconds.
    """

    def __init__(self, text: str = "", retry_after_s: int = 1) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class LoadFailed(RequestError):
    """The model could not be loaded or changed; what served before serves on."""


class MemoryNotFound(RequestError):
    """No region of that name is registered, or its key names nothing that may be used."""


class RegionTaken(RequestError):
    """A region of that name is registered already."""


class RequestTooLarge(RequestError):
    """The request is over a configured limit of bytes or instances."""


class Overloaded(RequestError):
    """Slots or memory are used up, or so much waits that the answer would come too late.

    Attributes:
        retry_after_s: when the request may be sent again, in whole seconds.
    """

    def __init__(self, text: str = "", retry_after_s: int = 1) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class LimitReached(Overloaded):
    """A limit of the client's account is reached."""


class Draining(RequestError):
    """The server is stopping and takes no new work."""


class DeadlineExceeded(RequestError):
    """The deadline passed before an answer stood in the slot."""


class ModelFailed(RequestError):
    """The model raised, or its answer does not fit its own signature."""


class ModelServerAnswered(RequestError):
    """The server that runs the model refused the batch, or failed.

    Attributes:
        status: its status, from 400 to 599; the text is its body.
        retry_after: its header of that name; empty if there was none.
    """

    def __init__(self, text: str = "", status: int = 502, retry_after: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.retry_after = retry_after


class ModelServerBroken(RequestError):
    """The server that runs the model gave no answer that could be read as one."""


class ModelServerMiscounted(ModelServerBroken):
    """The model answered with another number of predictions than it was given instances."""


class ModelServerDown(RequestError):
    """Nothing listens at the address of the server that runs the model."""


class WorkerDied(RequestError):
    """The process that ran the request died, and so did the one that tried again."""


class AnswerCutOff(RequestError):
    """The process that ran the request died when a part of the answer was out."""


def shortage(number: int, otherwise: str = "") -> str:
    """Return the error that no process can be started, or has no place in a cluster, and why.

    Args:
        number: the kernel's reason, an errno.
        otherwise: the text if the reason is no shortage.
    """
    if number == NO_PLACE_YET:
        return "the cluster has no place for its actor yet; the log says what is missing"
    why = _SHORTAGES.get(number) or otherwise or errno.errorcode.get(number, f"error {number}")
    return f"no process can be started: {why}"


def how_to_install(extra: str) -> str:
    """Return the command that installs the packages of one of ringbatch's extras.

    Both of its forms: in a clone that nothing was installed from, pip would look elsewhere for a
    project of this name.
    """
    return f"pip install 'ringbatch[{extra}]', or in a clone '.[{extra}]'"


def type_in_words(value: object) -> str:
    """Return the type of a value with its article, such as "an int"; "None" for None."""
    if value is None:
        return "None"
    name = type(value).__name__
    # Of a u most people say "you", as in UUID and uint8.
    article = "an" if name[0] in "aeioAEIO" or name.startswith("ndarray") else "a"
    return f"{article} {name}"
