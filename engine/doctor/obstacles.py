"""Obstacles to a start here: the doctor's findings that a start would end with.

They are for ``ringbatch check``, which refuses what ``ringbatch serve`` would refuse and nothing
else. So a running engine of the same name is no obstacle: the checked one is to take its
place, by a restart or a handover.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from ringbatch.engine.config.problems import key_text
from ringbatch.engine.config.settings import Config
from ringbatch.engine.doctor import (
    cpu_checks,
    credential_checks,
    engine_checks,
    memory_checks,
    software_checks,
)
from ringbatch.engine.doctor.case import Check
from ringbatch.engine.doctor.engines import engines
from ringbatch.engine.doctor.examination import gathered, judge
from ringbatch.engine.doctor.facts import Door, Engines, Facts, Software
from ringbatch.engine.doctor.findings import Finding, Level
from ringbatch.engine.doctor.host_files import HostFiles
from ringbatch.engine.doctor.probes import credentials, doors
from ringbatch.engine.doctor.server_files import unusable
from ringbatch.engine.doctor.software import software
from ringbatch.engine.runtimes.texts.directory import READERS
from ringbatch.shm.errors import StartupError

_CHECKS: Final[tuple[Check, ...]] = (
    software_checks.packages,
    memory_checks.dev_shm,
    cpu_checks.cpu_sets,
    credential_checks.credentials,
    engine_checks.ports,
)


class Outlook(NamedTuple):
    """The prospects of a start on this host; a line for each finding.

    Attributes:
        obstacles: that a start would end with.
        held: ports of the engine that goes before the configured one starts.
    """

    obstacles: list[str]
    held: list[str]


def outlook(config: Config, *, passed: bool = False) -> Outlook:
    """Return what a start on this host would end with, and what must go first.

    Args:
        config: of the engine.
        passed: True if the sockets for HTTP are passed to the engine, so that others hold its port.
    """
    files = HostFiles()
    facts, faults = gathered(
        {
            "shared_memory": files.shared_memory,
            "processors": files.processors,
            "doors": lambda: doors(config.server, files),
            "engines": engines,
            "software": software,
            "credentials": lambda: credentials(config.server, os.environ),
        }
    )
    found = judge(decisive(facts, config, passed=passed), config, _CHECKS, asked=True)
    return Outlook(
        [
            *unreadable(config),
            *incomplete(config),
            *unusable(config.server),
            *_lines([*found, *faults], Level.ERROR),
        ],
        _lines([finding for finding in found if finding.check == engine_checks.PORTS], Level.NOTE),
    )


def unreadable(config: Config) -> list[str]:
    """Return a line for each file of a model that this user may not read."""
    found = []
    for model in config.models:
        for key in ("path", "warm_up_file"):
            path = getattr(model, key)
            if isinstance(path, Path) and not os.access(path, os.R_OK):
                do = "let the engine's user read it, and enter its folders"
                found.append(f"[models.{key_text(model.name)}] {key}: {path}: cannot be read; {do}")
    return found


def incomplete(config: Config) -> list[str]:
    """Return a line for each directory that lacks a file of its model."""
    found = []
    for model in config.models:
        read = READERS.get(model.loader)
        if read is None or not os.access(model.path, os.R_OK | os.X_OK):
            continue
        try:
            read(Path(model.path))
        except StartupError as error:
            found.append(f"[models.{key_text(model.name)}] path: {error}")
    return found


def decisive(facts: Facts, config: Config, *, passed: bool) -> Facts:
    """Return the facts that matter to a start."""
    return replace(
        facts,
        doors=facts.doors and tuple(d for d in facts.doors if not _is_passed(d, passed=passed)),
        engines=facts.engines and _same(facts.engines, config.server.name),
        software=facts.software and _missing(facts.software),
    )


def _lines(findings: Sequence[Finding], level: Level) -> list[str]:
    return [f"{finding.found}; {finding.do}" for finding in findings if finding.level is level]


def _is_passed(door: Door, *, passed: bool) -> bool:
    return passed and door.is_for_http


def _same(found: Engines, name: str) -> Engines:
    """Return the engines with the memory of all others left out, because they keep it anyway."""
    running = (e if e.engine == name else replace(e, segment_bytes=0) for e in found.running)
    return replace(found, running=tuple(running))


def _missing(found: Software) -> Software:
    """Return the software without packages of other releases, which may do."""
    packages = (p if p.version is None else replace(p, bounds="") for p in found.packages)
    return replace(found, packages=tuple(packages))
