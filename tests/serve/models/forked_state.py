"""Tells the state of its process that a fork could have brought along."""

import atexit
import builtins
import ctypes
import decimal
import faulthandler
import gc
import hashlib
import json
import locale
import logging
import mmap
import multiprocessing
import os
import pickle
import random
import resource
import secrets
import select
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import uuid
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import IOBase
from pathlib import Path
from typing import Any

import numpy as np

LIBC = ctypes.CDLL(None)
RLIMITS = 16
"""RLIM_NLIMITS of <sys/resource.h>."""
OWN = Path("/proc/self")
GENERATORS = (random.Random, np.random.RandomState, np.random.Generator, np.random.BitGenerator)
DESCRIBED = (IOBase, mmap.mmap, select.epoll, socket.socket, subprocess.Popen, ThreadPoolExecutor)
HOOKS = ("excepthook", "unraisablehook", "displayhook", "breakpointhook")
STATUS = ("SigBlk", "SigIgn", "SigCgt", "Umask", "NoNewPrivs", "Seccomp", "CapEff", "Cpus_allowed")
PR_GETS = {"dumpable": 3, "keeps capabilities": 7, "securebits": 27, "huge pages off": 42}


def named(thing: object) -> str:
    """Return the representation of an object without its address."""
    return repr(thing).partition(" at 0x")[0]


def descriptors() -> list[Any]:
    """Return target, flags and inheritance of each open file; their numbers are anyone's."""
    found = []
    for number in map(int, os.listdir(OWN / "fd")):
        # That of the list itself is closed already.
        with suppress(OSError):
            target = os.readlink(OWN / "fd" / str(number)).partition("[")[0]
            flags = (OWN / "fdinfo" / str(number)).read_text().split()[3]
            found.append([target, flags, os.get_inheritable(number)])
    return sorted(found)


def objects() -> dict[str, Any]:
    """Return random generators, held locks, and objects with descriptors or threads."""
    # The parent's are frozen.
    gc.unfreeze()
    digests: dict[str, Any] = {}
    locks, others = 0, []
    for thing in gc.get_objects():
        if isinstance(thing, GENERATORS) and not isinstance(thing, random.SystemRandom):
            kind = f"generator {type(thing).__qualname__}, number "
            number = sum(key.startswith(kind) for key in digests)
            digests[f"{kind}{number}"] = hashlib.sha256(pickle.dumps(thing)).hexdigest()
        elif type(thing).__name__ in ("lock", "RLock"):
            locks += repr(thing).startswith("<locked")
        elif isinstance(thing, DESCRIBED) and not getattr(thing, "closed", False):
            number = thing.fileno() if hasattr(thing, "fileno") else 0
            others += [type(thing).__qualname__] if number >= 0 else []
    return digests | {"held locks": locks, "open": sorted(others)}


def packages() -> list[str]:
    """Return the imported packages beside Python's own."""
    return sorted({name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names)


def loggers() -> list[Any]:
    known = [logging.root, *logging.root.manager.loggerDict.values()]
    return sorted(
        [one.name, one.level, [named(handler) for handler in one.handlers], one.propagate]
        for one in known
        if isinstance(one, logging.Logger)
    )


def signals() -> dict[int, str]:
    return {int(number): named(signal.getsignal(number)) for number in signal.valid_signals()}


PROBES: dict[str, Callable[[], Any]] = {
    # Drawn, each differently in every process that was executed.
    "numpy's generator": np.random.random,
    "numpy's normal numbers": np.random.standard_normal,
    "a new generator of numpy": lambda: np.random.default_rng().random(),
    "Python's generator": random.random,
    "secrets": lambda: secrets.token_hex(8),
    "OpenSSL's generator": lambda: ssl.RAND_bytes(8).hex(),
    "names of temporary files": lambda: next(tempfile._get_candidate_names()),  # type: ignore[attr-defined]
    "uuid4": lambda: uuid.uuid4().hex,
    "uuid1": lambda: uuid.uuid1().hex,
    "multiprocessing's key": lambda: multiprocessing.current_process().authkey.hex(),
    "secret of hashes": lambda: hash("text"),
    # Of a type it may be the same for all: not every Python is a position-independent program.
    "addresses": lambda: id(sys.modules),
    # Of this process, or of the one that it was forked from.
    "process id of multiprocessing": lambda: multiprocessing.current_process().pid == os.getpid(),
    "kernel's number of the thread": lambda: threading.main_thread().native_id == os.getpid(),
    "threads": lambda: [named(thread.name) for thread in threading.enumerate()],
    "leads its group": lambda: os.getpgid(0) == os.getpid(),
    "children": lambda: resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss,
    "ended children": lambda: len(subprocess._active),  # type: ignore[attr-defined]
    "timers": lambda: [signal.getitimer(which) for which in range(3)],
    "command line": lambda: [word for word in sys.orig_argv if not word.isdecimal()],
    "arguments": lambda: sys.argv,
    "flags": lambda: list(sys.flags),
    # As it was left.
    "libc's generator": LIBC.rand,
    "uuid's memory": lambda: [
        getattr(uuid, name) for name in dir(uuid) if name.startswith("_last")
    ],
    "node of uuid1": lambda: uuid._node,  # type: ignore[attr-defined]
    "folder of temporary files": lambda: tempfile.tempdir,
    "descriptors": descriptors,
    "signals": signals,
    "status": lambda: [
        line
        for line in (OWN / "status").read_text().splitlines()
        if line.partition(":")[0] in STATUS
    ],
    "limits": lambda: [resource.getrlimit(which) for which in range(RLIMITS)],
    "place in the queue": lambda: [os.nice(0), os.sched_getscheduler(0)],
    "kernel's settings": lambda: [
        (OWN / name).read_text() for name in ("oom_score_adj", "timerslack_ns", "coredump_filter")
    ],
    "prctl": lambda: {name: LIBC.prctl(number, 0, 0, 0, 0) for name, number in PR_GETS.items()},
    "personality": lambda: LIBC.personality(0xFFFFFFFF),
    "loggers": loggers,
    "hooks": lambda: [named(getattr(sys, name)) for name in HOOKS],
    "warnings": lambda: [sys.warnoptions, named(warnings.showwarning), named(warnings.filters)],
    "importers": lambda: [sys.path, [named(one) for one in (*sys.meta_path, *sys.path_hooks)]],
    "built-ins": lambda: sorted(vars(builtins)),
    "at the end": lambda: [atexit._ncallbacks(), len(weakref.finalize._registry)],  # type: ignore[attr-defined]
    "collector": lambda: [gc.isenabled(), gc.get_threshold(), len(gc.callbacks)],
    "interpreter": lambda: [sys.getrecursionlimit(), sys.getswitchinterval(), sys.gettrace()],
    "streams": lambda: [
        [each.name, each.mode, each.encoding, each.errors, each.line_buffering]
        for each in (sys.stdin, sys.stdout, sys.stderr)
    ],
    "faulthandler": faulthandler.is_enabled,
    "locale and zone": lambda: [locale.setlocale(locale.LC_ALL), time.tzname, time.timezone],
    "numbers": lambda: [np.geterr(), str(decimal.getcontext()), float(np.float32(1e-40) * 1)],
    "sockets": lambda: [socket.getdefaulttimeout(), threading.stack_size()],
    "environment": lambda: dict(os.environ),
    "packages": packages,
}
FOUND = json.dumps(objects() | {name: probe() for name, probe in PROBES.items()})


def predict(instances: list[Any]) -> list[str]:
    return [FOUND for _ in instances]
