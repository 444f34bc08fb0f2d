"""The check of certificates, keys and API keys. Pure."""

from collections.abc import Iterator
from typing import Final

from ringbatch.engine.doctor.case import Case, Topic
from ringbatch.engine.doctor.findings import Finding

_CREDENTIALS: Final = Topic(
    "credentials", "without a file that it is to use, an engine does not start"
)


def credentials(case: Case) -> Iterator[Finding]:
    """Whether the files can be read and belong together."""
    refusal = case.facts.credentials
    if refusal is None:
        yield _CREDENTIALS.unknown("whether certificates and keys can be used")
    elif refusal:
        yield _CREDENTIALS.error(
            refusal, "put the file right, or let the engine's user read it, and nobody else"
        )
    else:
        yield _CREDENTIALS.ok("those that are configured can be used")


CHECKS: Final = (credentials,)
