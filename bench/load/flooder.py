"""An attacker, as a process of its own, until its input ends.

    cd bench && python -m load.flooder PORT ATTACK

It connects again whenever the server hangs up, up to some times a second: how many connections one
address may make is for a firewall to say. It prints a line once it has begun, and one of JSON at
its end.
"""

import argparse
import json
import os
import select
import socket
import sys
import threading
import time
from contextlib import suppress

from host.server import HOST

from load.attacks import ATTACKS, Attack

NICENESS = 10
"""An attacker has a machine of its own; here it leaves the cores to whoever wants them."""
LOOK_S = 0.2


class Flooder:
    """Attacker: its connections, its pace, and the bytes that it has sent.

    Attributes:
        connects: connections that were made.
        sent_bytes: on all of them.

    Args:
        port: of the server.
        attack: the attack to carry out.
        connects_per_s: connections that it makes at most, beyond the first ones.
    """

    def __init__(self, port: int, attack: Attack, connects_per_s: float) -> None:
        self.connects = 0
        self.sent_bytes = 0
        self._port = port
        self._attack = attack
        self._every_s = 1 / connects_per_s
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._next_s = time.monotonic()
        self._threads = [threading.Thread(target=self._run) for _ in range(attack.connections)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let go of all connections."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._turn_s()):
            with suppress(OSError), socket.create_connection((HOST, self._port), 5) as own:
                with self._lock:
                    self.connects += 1
                sent = self._attack_on(own)
                with self._lock:
                    self.sent_bytes += sent

    def _turn_s(self) -> float:
        """Return the seconds to wait before the next connection."""
        with self._lock:
            now_s = time.monotonic()
            if self.connects < self._attack.connections:
                return 0.0
            self._next_s = max(self._next_s, now_s) + self._every_s
            return self._next_s - now_s

    def _attack_on(self, own: socket.socket) -> int:
        """Send until the server hangs up; how many bytes were sent."""
        own.setblocking(False)
        reading = [own] if self._attack.reads else []
        rest, sent, pieces = memoryview(self._attack.opening), 0, self._attack.pieces()
        try:
            while not self._over.is_set():
                readable, writable, _ = select.select(reading, [own] if rest else [], [], LOOK_S)
                if readable and not own.recv(1 << 18):
                    break
                if writable:
                    size = own.send(rest)
                    sent, rest = sent + size, rest[size:]
                if not rest and (piece := next(pieces, None)) is not None:
                    self._over.wait(self._attack.pace_s)
                    rest = memoryview(piece)
        except OSError:
            pass
        return sent


def main() -> int:
    """Attack; return the exit status, 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("attack", choices=ATTACKS)
    parser.add_argument("--connects-per-s", type=float, default=10.0)
    options = parser.parse_args()
    # Whatever the scenario itself runs with, as chrt on a host that others use.
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    os.nice(NICENESS)
    flooder = Flooder(options.port, ATTACKS[options.attack], options.connects_per_s)
    print("begun", flush=True)
    sys.stdin.read()
    flooder.stop()
    print(json.dumps({"connects": flooder.connects, "sent_bytes": flooder.sent_bytes}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
