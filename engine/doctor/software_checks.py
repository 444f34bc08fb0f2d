"""Checks of Python, packages and of how ringbatch is installed. Pure."""

import operator
import re
from collections.abc import Callable, Iterator
from typing import Final

from ringbatch.engine.config.settings import Config
from ringbatch.engine.doctor.case import Case, Topic
from ringbatch.engine.doctor.facts import Package
from ringbatch.engine.doctor.findings import Finding
from ringbatch.shm.errors import how_to_install

TESTED: Final = ((3, 11), (3, 14))
"""The oldest and the newest Python that ringbatch is tested with."""

_PYTHON: Final = Topic("python", "ringbatch is tested with CPython 3.11 to 3.14")
_PACKAGES: Final = Topic("packages", "below its floor a release was never tested with ringbatch")
_COMPILED: Final = Topic(
    "compiled",
    "the hot path turned into C serves a sixth to two fifths more requests a second "
    "(docs/how-to/install.md)",
)
_REASONS: Final = {
    "gunicorn": "releases below have known request-smuggling advisories",
    "uvicorn": "its internals are used by the fallback protocol, so each minor release is tested "
    "first; releases below have known request-smuggling advisories",
    "orjson": "releases below have a known recursion advisory",
}
_OPERATORS: Final[dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_BOUND: Final = re.compile(r"(>=|<=|==|!=|>|<)\s*([\d.]+)")


def python(case: Case) -> Iterator[Finding]:
    """Check the interpreter."""
    software = case.facts.software
    if software is None:
        yield _PYTHON.unknown("the version of Python")
        return
    found = f"{software.implementation} {'.'.join(map(str, software.python))}"
    oldest, newest = TESTED
    if software.implementation != "CPython" or software.python[:2] < oldest:
        yield _PYTHON.error(found, "install it for CPython 3.11 to 3.14")
    elif software.python[:2] > newest:
        yield _PYTHON.note(found, "prefer a tested release where something is odd")
    else:
        yield _PYTHON.ok(found)


def packages(case: Case) -> Iterator[Finding]:
    """Check for packages that are missing, or of other releases than ringbatch needs."""
    software = case.facts.software
    if software is None or not software.packages:
        yield _PACKAGES.note(
            "ringbatch is not installed as a distribution, so what it asks for is not known",
            "pip install it",
        )
        return
    needed = {"", *_extras(case.config)}
    wanted = [package for package in software.packages if package.extra in needed]
    fine = True
    for package in wanted:
        if (finding := _judged(package)) is not None:
            fine = False
            yield finding
    if fine:
        shown = ", ".join(f"{package.name} {package.version}" for package in wanted)
        yield _PACKAGES.ok(shown)


def _judged(package: Package) -> Finding | None:
    """Return the fault of a package that is needed."""
    if package.version is None:
        return _PACKAGES.error(
            f"{package.name} is not installed",
            how_to_install(package.extra) if package.extra else "install ringbatch again, with pip",
            "the configuration needs it" if package.extra else "nothing works without it",
        )
    if within(package.version, package.bounds):
        return None
    return _PACKAGES.error(
        f"{package.name} {package.version} is installed, and {package.bounds} is asked for",
        f"pip install '{package.name}{package.bounds}'",
        _REASONS.get(package.name, ""),
    )


def _extras(config: Config) -> set[str]:
    """Return the extras of ringbatch that a configuration needs."""
    # Batches are sent to model servers without a package; only requests passed on need one.
    found = {model.platform for model in config.models} - {"python", "http"}
    if any(model.ray_workers for model in config.models):
        found.add("ray")
    if config.server.http2:
        found.add("http2")
    if config.server.serves_grpc:
        found.add("grpc")
    if config.server.trace_endpoint is not None:
        found.add("otel")
    if config.passes_to is not None:
        found.add("http")
    return found


def within(version: str, bounds: str) -> bool:
    """Return whether a version is within bounds such as ``>=0.34,<0.55``.

    Marks of pre-releases do not count.
    """
    have = _release(version)
    return all(
        _OPERATORS[sign](*_of_equal_length(have, _release(bound)))
        for sign, bound in _BOUND.findall(bounds)
    )


def _release(version: str) -> tuple[int, ...]:
    numbers = re.match(r"(?:\d+!)?(\d+(?:\.\d+)*)", version)
    return tuple(map(int, numbers[1].split("."))) if numbers else ()


def _of_equal_length(
    one: tuple[int, ...], other: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    length = max(len(one), len(other))
    return one + (0,) * (length - len(one)), other + (0,) * (length - len(other))


def compiled(case: Case) -> Iterator[Finding]:
    """Check whether the hot path is compiled."""
    software = case.facts.software
    if software is None:
        return
    version = software.ringbatch or "(not installed)"
    if software.compiled:
        yield _COMPILED.ok(f"ringbatch {version}, compiled")
    else:
        yield _COMPILED.note(
            f"ringbatch {version}, not compiled",
            "RINGBATCH_COMPILE=1 pip install, with a C compiler and Python's headers",
        )


CHECKS: Final = (python, packages, compiled)
