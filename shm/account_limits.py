"""Limits of an account, see `ringbatch.shm.account`. Pure."""

from dataclasses import dataclass, fields
from typing import Final

from ringbatch.shm.errors import LimitReached

MAX_REQUESTS_PER_S: Final = 1_000_000
"""The most requests a second that a limit can be."""
MAX_MODEL_S_PER_S: Final = 1024
"""The most model seconds a second that a limit can be."""


@dataclass(frozen=True, slots=True)
class AccountLimits:
    """The most that one account may ask of an engine; None for no limit.

    Attributes:
        in_flight: requests without an answer.
        requests_per_s: requests a second.
        model_s_per_s: seconds of models' run time a second.
    """

    in_flight: int | None = None
    requests_per_s: float | None = None
    model_s_per_s: float | None = None

    def over(self, others: "AccountLimits") -> "AccountLimits":
        """Return these limits, with others in place of those that are None."""
        names = [field.name for field in fields(self)]
        values = [(getattr(self, name), getattr(others, name)) for name in names]
        return AccountLimits(*[other if own is None else own for own, other in values])


NO_LIMITS: Final = AccountLimits()


def refusal_text(limit: str, wait_s: int) -> str:
    """Return the text in the slot of a request that is refused at a limit.

    Args:
        limit: with its value, such as ``50 requests a second``.
        wait_s: when to send the request again, in whole seconds.
    """
    return f"{wait_s} {limit}"


def read_refusal(text: str) -> LimitReached:
    """Return the error for a `refusal_text`; for any other text, an error with that."""
    wait_s, _, limit = text.partition(" ")
    if not limit or not (wait_s.isascii() and wait_s.isdecimal()):
        return LimitReached(text)
    return LimitReached(
        f"the limit of {limit} for one client is reached; try again in {wait_s} s", int(wait_s)
    )
