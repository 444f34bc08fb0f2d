"""Form of error messages, and a group of forms."""

from typing import Final, NamedTuple

INVALID: Final = "InvalidRequest"
TOO_LARGE: Final = "RequestTooLarge"


class Form(NamedTuple):
    """Messages that share cause and remedy.

    Attributes:
        error: name of the error's class.
        texts: forms of the messages.
        cause: why a request gets one.
        remedy: what to do.
    """

    error: str
    texts: tuple[str, ...]
    cause: str
    remedy: str


class Group(NamedTuple):
    """Forms under one heading."""

    title: str
    forms: tuple[Form, ...]
