"""A gateway that lets requests gather while earlier ones of its own are under way.

Over HTTP, requests that came together are found together, in one turn of the event loop. grpcio
hands calls over one by one, each in a turn of its own. Each would then wake the collector, run
alone, and have this process woken for its one answer, which costs more than all else that is done
for it. So while something is in the engine, what comes waits for the next answer, which is an
occasion to look at everything anyway, and is announced together then.

A request never waits where nothing is under way, and no longer than `HOLD_S` for an answer. Where
none came in that time, batches take longer than gathering is worth, and for a while nothing waits.
"""

import asyncio
from typing import Final

from ringbatch.frontend.gateway import Gateway

HOLD_S: Final = 0.001
"""The longest wait; the event loop's timers count milliseconds."""
IN_VAIN: Final = 64
"""Announcements that are made at once after a wait was in vain."""


class PatientGateway(Gateway):
    """See above; otherwise as its base class."""

    _held: asyncio.TimerHandle | None = None
    _hasty = 0

    def close(self) -> None:
        """As in `Gateway`."""
        self._let_go()
        super().close()

    def _turn(self) -> None:
        if self._held is not None:
            return
        under_way = self.lane.in_flight - self._unannounced
        if not under_way or self._hasty:
            self._hasty -= self._hasty > 0
            super()._turn()
        else:
            # The turn stays due, so that nothing that comes meanwhile asks for another.
            self._held = self._loop.call_later(HOLD_S, self._waited_in_vain)

    def _rung(self) -> None:
        super()._rung()
        if self._held is not None:
            super()._turn()

    def _announce(self) -> None:
        self._let_go()
        super()._announce()

    def _let_go(self) -> None:
        """The turn that was held is over, whoever ends it."""
        if self._held is not None:
            self._held.cancel()
            self._held = None
            self._turn_is_due = False

    def _waited_in_vain(self) -> None:
        self._hasty = IN_VAIN
        super()._turn()
