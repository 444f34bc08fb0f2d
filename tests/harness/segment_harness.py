"""Segments in /dev/shm under names of the tests' own, and processes that make and attach them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringbatch.shm.layout import PAGE, Layout
from ringbatch.shm.model_spec import ModelSpec, dumps
from ringbatch.shm.segment import Segment

SHM = Path("/dev/shm")
OWN = f"ringbatch-{os.getpid()}"
"""Prefix of names that these tests look at; no other engine's start sweeps them up."""
MODELS = (ModelSpec(0, "m", "python", (), (), 1, 0, 1, "eager", (0,)),)
LAYOUT = Layout(
    lanes=2,
    slots=4,
    lane_bytes=PAGE,
    workers=1,
    models=1,
    model_table_bytes=len(dumps(MODELS)) + 10,
)
PRELUDE = f"""
import os, sys, time
from ringbatch.shm import shm_objects as objects
objects.PREFIX = {OWN!r}
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import Layout
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.segment import Segment
layout = {LAYOUT!r}
models = ({MODELS[0]!r},)
def say(text):
    print(text, flush=True)
def stay():
    sys.stdin.read()
"""
MAKE = "made = Segment.create(layout, models)\nsay(made.name)\nstay()\n"
"""A script that makes a segment, says its name and lives on."""


@contextmanager
def child(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs the script; whatever it does, it is gone afterwards."""
    command = [sys.executable, "-c", PRELUDE + script, *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    """Return the next line that the process prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def lives(segment: Segment) -> bool:
    """Asked anew each time, where a checker of types would remember the property."""
    return segment.alive


def objects_of(name: str) -> list[Path]:
    """The segment and its doorbells."""
    return sorted(SHM.glob(f"*{name.removeprefix('/')}*"))
