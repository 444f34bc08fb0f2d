"""Kills and stops of a server's processes, and the connections that they excuse."""

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from chaos.clients import Scene
from open_files import open_files
from serve.server import Server

ROLES = {
    "worker": "worker ",
    "collector": "collector",
    "frontend": "frontend ",
    "grpc": "grpc frontend ",
    "arbiter": "frontends",
    "control": "control",
    "supervisor": "supervisor",
}
"""Prefix of the titles of each role, after the name of the engine."""
_AWAY_LIMIT_S = 120.0


class Havoc:
    """Kills and stops of a server's processes.

    Attributes:
        done: number of processes that were killed or stopped.
        longest_away_s: the longest time until a killed role was filled again.
    """

    def __init__(self, server: Server, scene: Scene, source: random.Random) -> None:
        self._server = server
        self._scene = scene
        self._source = source
        self.done = 0
        self.longest_away_s = 0.0

    def of(self, role: str) -> list[int]:
        """The processes that have a role now."""
        start = f"ringbatch: {ROLES[role]}"
        titles = self._server.titles()
        exact = not start.endswith(" ")
        return [
            pid
            for title, pid in titles.items()
            if (title == start if exact else title.startswith(start))
        ]

    async def kill(
        self,
        role: str,
        count: int,
        settle: Callable[[], bool],
        number: signal.Signals = signal.SIGKILL,
    ) -> None:
        """Kill one process of a role, and wait until there are as many as before.

        Args:
            role: a key of `ROLES`.
            count: number of processes of the role.
            settle: whether enough has happened since that the next kill is another one.
            number: SIGKILL, or SIGSTOP for a process that will never go on by itself.
        """
        victim = await self.strike(role, count, number)
        await self.refilled(role, count, victim, settle)

    def hit(self, role: str) -> None:
        """Kill any process of a role, where there is one."""
        if found := self.of(role):
            with suppress(ProcessLookupError):
                os.kill(self._source.choice(found), signal.SIGKILL)
                self.done += 1

    async def strike(self, role: str, count: int, number: signal.Signals = signal.SIGKILL) -> int:
        """Kill a process of a role, and return its id: the first half of `kill`."""
        victim = await self._oldest(role, count)
        if role == "frontend":
            # Stopped, it accepts no connection between the look at them and its end.
            os.kill(victim, signal.SIGSTOP)
            self._scene.doomed |= connections_of(victim, self._server.port)
        os.kill(victim, number)
        self.done += 1
        return victim

    async def refilled(
        self, role: str, count: int, victim: int, settle: Callable[[], bool]
    ) -> None:
        """Wait until a role is filled again: the second half of `kill`."""
        began = time.monotonic()
        while True:
            present = self.of(role)
            if victim not in present and len(present) >= count and settle():
                break
            if time.monotonic() - began > _AWAY_LIMIT_S:
                self._scene.ledger.fail(f"no {role} came in place of the one that was killed")
                return
            await asyncio.sleep(0.05)
        self.longest_away_s = max(self.longest_away_s, time.monotonic() - began)

    async def stop(self, role: str, count: int, seconds: float) -> None:
        """Stop one process of a role, and have it go on after so long."""
        victim = await self._oldest(role, count)
        os.kill(victim, signal.SIGSTOP)
        ports = connections_of(victim, self._server.port) if role == "frontend" else set()
        self.done += 1
        try:
            for port in ports:
                self._scene.stopped[port] = time.monotonic() + seconds
            await asyncio.sleep(seconds)
        finally:
            now = time.monotonic()
            for port in ports:
                self._scene.stopped[port] = now
            # It may have been taken for hung, and ended.
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGCONT)

    async def _oldest(self, role: str, count: int) -> int:
        """The process of a role that has lived longest: its place has forgotten the last kill."""
        began = time.monotonic()
        while len(found := self.of(role)) < count:
            if time.monotonic() - began > _AWAY_LIMIT_S:
                raise SystemExit(f"{len(found)} processes are {role}, not {count}")
            await asyncio.sleep(0.05)
        return min(found, key=_born)


def _born(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def connections_of(pid: int, server_port: int) -> set[int]:
    """The clients' ports of the connections that a process has accepted."""
    inodes = {
        target.removeprefix("socket:[").removesuffix("]") for target in open_files(pid).values()
    }
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        row = line.split()
        own, other = (int(row[at].split(":")[1], 16) for at in (1, 2))
        if own == server_port and other and row[9] in inodes:
            found.add(other)
    return found
