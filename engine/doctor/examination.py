"""The examination: facts of the host are gathered, every check judges them, and all is printed.

A fault in one of the parts costs that part alone, so that the user still gets the rest.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from ringbatch.engine.config.document import ConfigError, bundled
from ringbatch.engine.config.settings import Config
from ringbatch.engine.doctor import (
    cpu_checks,
    credential_checks,
    engine_checks,
    gpu_checks,
    kernel_checks,
    limit_checks,
    memory_checks,
    software_checks,
)
from ringbatch.engine.doctor.case import Case, Check, Topic
from ringbatch.engine.doctor.engines import engines
from ringbatch.engine.doctor.facts import Facts
from ringbatch.engine.doctor.findings import Finding, Level
from ringbatch.engine.doctor.host_files import HostFiles, limits
from ringbatch.engine.doctor.logins import login
from ringbatch.engine.doctor.needs import needs
from ringbatch.engine.doctor.nvidia import nvidia
from ringbatch.engine.doctor.probes import credentials, doors, exposed, features
from ringbatch.engine.doctor.report import as_json, text
from ringbatch.engine.doctor.software import software
from ringbatch.engine.doctor.wake_ups import measure
from ringbatch.engine.process.placement import host
from ringbatch.shm.errors import StartupError

T = TypeVar("T")

CHECKS: Final[tuple[Check, ...]] = (
    *kernel_checks.CHECKS,
    *software_checks.CHECKS,
    *memory_checks.CHECKS,
    *limit_checks.CHECKS,
    *cpu_checks.CHECKS,
    *credential_checks.CHECKS,
    *engine_checks.CHECKS,
    *gpu_checks.CHECKS,
)
"""Checks in the order in which they are printed."""

_CONFIGURATION: Final = Topic("configuration", "an engine starts with a sound one alone")
_DOCTOR: Final = Topic("doctor", "the findings are not complete")


def run(
    configure: Callable[[], Config],
    words: Callable[[str], str],
    *,
    asked: bool,
    as_objects: bool,
) -> int:
    """Examine this host and print the findings; return the exit status.

    Args:
        configure: what is to be served on it, or a `ConfigError`.
        words: names the settings in a text as the user gave them.
        asked: whether anything was said of that.
        as_objects: whether to print JSON.
    """
    findings = []
    try:
        config = configure()
        if asked:
            findings += [_CONFIGURATION.note(line) for line in config.notices] or [
                _CONFIGURATION.ok("it is sound")
            ]
    except ConfigError as error:
        config, asked = bundled(), False
        findings += [
            _CONFIGURATION.error(problem, "put it right; ringbatch check tells more")
            for problem in error.problems
        ]
    facts, faults = gather(config, HostFiles())
    findings += [*judge(facts, config, asked=asked), *faults]
    findings = [
        replace(one, found=words(one.found), why=words(one.why), do=words(one.do))
        for one in findings
    ]
    said = as_json(findings, facts) if as_objects else text(findings)
    # A process may have any bytes for a title, and the terminal may not have every letter.
    encoding = sys.stdout.encoding or "utf-8"
    print(said.encode(encoding, "backslashreplace").decode(encoding))
    return int(any(finding.level is Level.ERROR for finding in findings))


def gather(config: Config, files: HostFiles) -> tuple[Facts, list[Finding]]:
    """Return the facts of the host, and the parts of them that a fault of the doctor has cost."""
    sources: Mapping[str, Callable[[], Any]] = {
        "shared_memory": files.shared_memory,
        "login": login,
        "limits": limits,
        "group": files.control_group,
        "processors": files.processors,
        "memory": files.memory,
        "huge_pages": files.huge_pages,
        "clock": files.clock,
        "kernel": files.kernel,
        "features": features,
        "doors": lambda: doors(config.server, files),
        "credentials": lambda: credentials(config.server, os.environ),
        "exposed": lambda: exposed(config.server, os.environ),
        "engines": engines,
        "software": software,
        "wake_ups": lambda: measure(files),
        "nvidia": nvidia,
    }
    return gathered(sources)


def gathered(sources: Mapping[str, Callable[[], Any]]) -> tuple[Facts, list[Finding]]:
    """As `gather`, of some facts; `sources` finds each out, by its name in `Facts`."""
    faults: list[Finding] = []
    known = {name: _guarded(name, source, faults) for name, source in sources.items()}
    return Facts(**known, environment=dict(os.environ)), faults


def judge(
    facts: Facts, config: Config, checks: Sequence[Check] = CHECKS, *, asked: bool
) -> list[Finding]:
    """Return the findings of the checks."""
    findings: list[Finding] = []
    shared = facts.shared_memory
    free_bytes = None if shared is None or shared.free_bytes is None else shared.free_bytes
    if free_bytes is not None and facts.engines is not None:
        # The start removes that first.
        free_bytes += facts.engines.left_bytes
    cpus = facts.processors.host if facts.processors is not None else host()
    wanted = _guarded(
        "configuration", lambda: needs(config, cpus, free_bytes, facts.environment), findings
    )
    if wanted is not None:
        case = Case(facts=facts, config=config, asked=asked, needs=wanted)
        for check in checks:
            findings += _judged(check, case)
    return findings


def _judged(check: Check, case: Case) -> list[Finding]:
    said: list[Finding] = []
    _guarded(check.__name__, lambda: said.extend(check(case)), said)
    return said


def _guarded(part: str, find: Callable[[], T], faults: list[Finding]) -> T | None:
    """Return the facts; record a fault if the host or a defect of the doctor is in the way.

    If the host refuses, None is returned, and the check of that fact says so.
    """
    try:
        return find()
    except (OSError, StartupError):
        return None
    except Exception as error:
        faults.append(
            _DOCTOR.warning(
                f"{part.replace('_', ' ')} could not be examined: {type(error).__name__}: {error}",
                "look at that by hand",
            )
        )
        return None
