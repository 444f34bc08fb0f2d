"""Engines that run on this host, and what dead ones have left in /dev/shm."""

import os
from contextlib import suppress

from ringbatch.engine.doctor.facts import Engines, RunningEngine
from ringbatch.shm import shm_objects
from ringbatch.shm.engines import running
from ringbatch.shm.errors import StartupError


def engines() -> Engines:
    """Return all engines, as far as this user may see them."""
    dead = shm_objects.dead_engine_objects()
    left = [entry for _, entries in dead for entry in entries]
    left_bytes = 0
    for entry in left:
        with suppress(FileNotFoundError):
            left_bytes += entry.stat().st_blocks * 512
    found = _running()
    readable = {engine.name for engine in found} | {f"/{base}" for base, _ in dead}
    own = [name for name in shm_objects.segment_names() if _is_own(name)]
    return Engines(
        running=found,
        of_other_versions=tuple(name for name in own if name not in readable),
        of_others=tuple(name for name in shm_objects.segment_names() if not _is_own(name)),
        left=tuple(entry.name for entry in left),
        left_bytes=left_bytes,
    )


def _running() -> tuple[RunningEngine, ...]:
    try:
        with running(None) as segments:
            return tuple(
                RunningEngine(
                    name=segment.name,
                    engine=segment.engine,
                    pid=segment.pid,
                    models=tuple(dict.fromkeys(model.name for model in segment.models)),
                    segment_bytes=segment.layout.size,
                )
                for segment in segments
            )
    except StartupError:  # there is none
        return ()


def _is_own(name: str) -> bool:
    try:
        return os.stat(f"{shm_objects.DIRECTORY}{name}").st_uid == os.geteuid()
    except OSError:  # gone meanwhile
        return True
