"""Checks of certificates, keys and API keys, and of access without them. Pure."""

from collections.abc import Iterator
from typing import Final

from ringbatch.engine.doctor.case import Case, Topic
from ringbatch.engine.doctor.findings import Finding

_CREDENTIALS: Final = Topic(
    "credentials", "without a file that it is to use, an engine does not start"
)

_EXPOSED: Final = Topic("exposure", "strangers could use the models, or read a key that lets them")


def credentials(case: Case) -> Iterator[Finding]:
    """Check that the files can be read and belong together."""
    refusal = case.facts.credentials
    if refusal is None:
        yield _CREDENTIALS.unknown("whether certificates and keys can be used")
    elif refusal:
        yield _CREDENTIALS.error(
            refusal, "put the file right, or let the engine's user read it, and nobody else"
        )
    else:
        yield _CREDENTIALS.ok("those that are configured can be used")


def exposure(case: Case) -> Iterator[Finding]:
    """Check that API keys travel encrypted, and that no stranger is served without one."""
    found = case.facts.exposed
    if found is None:
        yield _EXPOSED.unknown("whether API keys are encrypted on their way")
    elif not found:
        yield _EXPOSED.ok("no setting lets strangers use the models or read a key")
    else:
        for exposure, do in found:
            yield _EXPOSED.warning(exposure, do)


CHECKS: Final = (credentials, exposure)
