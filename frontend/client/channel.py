"""Lane of a client, shared by the threads of its process.

A lane has one producer, so every use of it is under one lock, and short. No thread sleeps with the
lock. Of the threads that wait for answers one leads: it sleeps at the lane's doorbell, and hands
answers out to the others, which sleep on a lock of their own. A leader whose own answer has come
wakes one of the others to lead. So the worker itself wakes a lone thread.

Beside the doorbell the leader watches a descriptor for the end of the engine's supervisor, and
looks at the supervisor's lock. So no thread waits for an engine that is gone, or past its deadline.

An exception may hit a thread amid its use of the lane: KeyboardInterrupt, or that of a signal
handler. Then the thread takes the lane over from itself, as the next owner takes it over from a
dead one. Requests in flight are cancelled, and their waiters get an error.
"""

import os
import select
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Final

from ringbatch.frontend.client.callbacks import CallbackQueue
from ringbatch.frontend.client.errors import ClientClosed, EngineGone, Interrupted
from ringbatch.frontend.client.slots import Slots
from ringbatch.frontend.client.waiter import ClosingWaiter, Waiter, again
from ringbatch.frontend.codec.outcome import RULES
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.descriptors import HeaderWords
from ringbatch.shm.doorbell import Doorbell
from ringbatch.shm.errors import Draining, RequestError
from ringbatch.shm.host.background import short_thread
from ringbatch.shm.spinning import SpinPolicy
from ringbatch.shm.wakeup import Wakeup

NEVER: Final = 1 << 63
SWEEP_NS: Final = 1_000_000_000
"""The longest time between two looks at everything in flight."""
_DRAINING_WORD: Final = HeaderWords.DRAINING
_GRACE_S: Final = 0.1
"""Longest delay of a wake-up."""


class Channel:
    """A client's hold on the engine.

    Attributes:
        slots: the lane and what is in it; used under the lock alone.
        clock: monotonic nanoseconds.
        callbacks: waiters that are over, and whose functions are to run.
        closed: True once the lane is left.

    Args:
        slots: of a lane that this process holds.
        bell: the lane's.
        doorbell: the collector's, which `slots` rings; closed with the lane.
        life: what `Segment.watch_life` gives.
        spin_ns: how long a thread watches before it sleeps, if answers usually come as fast.
        clock: monotonic nanoseconds.
    """

    def __init__(
        self,
        slots: Slots,
        bell: Doorbell,
        doorbell: Wakeup,
        life: int,
        *,
        spin_ns: int = 0,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.slots = slots
        self.clock = clock
        self._segment = slots.segment
        self._words = slots.segment.words
        self._bell = bell
        self._doorbell = doorbell
        self._life = life
        self._poll = select.poll()
        self._poll.register(bell.fileno(), select.POLLIN)
        self._poll.register(life, select.POLLIN)
        self._signs = select.poll()
        self._signs.register(life, select.POLLIN)
        self._checked_ns = clock()
        self._patience = SpinPolicy(spin_ns)
        self._spinning = False
        self._lock = threading.Lock()
        self._busy = False
        """True while the lane is used; still true at the next use if that was interrupted."""
        self._refusal: RequestError | None = None
        """Why nothing is sent any more."""
        self._closing = False
        self._waiters: set[Waiter] = set()
        self._deferred = 0
        self._earliest_ns = NEVER
        """No waiter's deadline is before this."""
        self._leader: Waiter | None = None
        self._until_ns = NEVER
        """Instant in nanoseconds at which the leader wakes up by itself."""
        self._sleepers: dict[Waiter, None] = {}
        self.callbacks = CallbackQueue()
        self._standby: Waiter | None = None
        self._closer: Waiter | None = None
        self.closed = False
        self._detached = threading.Event()
        _CHANNELS.add(self)

    @property
    def gone(self) -> bool:
        """True once the engine has ended; looked up at most once a second."""
        now_ns = self.clock()
        if self._refusal is None and now_ns - self._checked_ns > SWEEP_NS:
            self._checked_ns = now_ns
            with self._lock:
                self._begin()
                if self._refusal is None and (self._signs.poll(0) or not self._segment.alive):
                    self._engine_ended()
                self._busy = False
            self.callbacks.deliver()
        return isinstance(self._refusal, EngineGone)

    def submit(self, waiter: Waiter, takes_word: int) -> bool:
        """Send a waiter's requests on their way.

        Args:
            waiter: gets its answers, or fails, from now on.
            takes_word: word of the segment that says whether the model takes requests.

        Returns:
            Whether they are; else nothing is sent.

        Raises:
            ClientClosed, EngineGone, Draining: nothing is sent any more.
        """
        with self._lock:
            self._begin()
            refusal, taken = self._refusal, False
            if self._closer is not None or (refusal is None and self._words[_DRAINING_WORD]):
                refusal = Draining(RULES[Draining].text)
            if refusal is None and (taken := bool(self._words[takes_word])):
                self._waiters.add(waiter)
                self._deferred += waiter.deferred
                if waiter.deadline_ns < self._earliest_ns:
                    self.expect(waiter.deadline_ns)
                waiter.advance()
                self.slots.lane.submit()
                if waiter.deferred and self._leader is None:
                    self._hand_over()
            self._busy = False
        self.callbacks.deliver()
        if refusal is not None:
            raise again(refusal)
        return taken

    def resume(self, waiter: Waiter) -> None:
        """Have a waiter that is ready send the rest of its requests."""
        with self._lock:
            self._begin()
            if self._refusal is None:
                waiter.advance()
                self.slots.lane.submit()
            self._busy = False
        self.callbacks.deliver()

    def took(self, time_ns: int) -> None:
        """Learn how long an answer took."""
        self._patience.learn(time_ns)

    def over(self, waiter: Waiter) -> None:
        """Forget a waiter that has got, or given up, everything; each calls it once."""
        if waiter.deferred:
            self._deferred -= 1
            self.callbacks.add(waiter)
        if waiter.asleep:
            self.wake(waiter)
        # At the end, so that a takeover finds a waiter that an exception has kept from the above.
        self._waiters.discard(waiter)
        if self._closer is not None and not self._waiters:
            self.callbacks.add(self._closer)

    def wake(self, waiter: Waiter) -> None:
        """Wake a waiter that has become ready, or is to lead."""
        if waiter.asleep:
            waiter.asleep = False
            del self._sleepers[waiter]
            assert waiter.signal is not None, "it sleeps on it"
            waiter.signal.release()

    def wait(self, waiter: Waiter, *, spin: bool = False) -> None:
        """Sleep until the waiter is ready; it fails where an exception ends this.

        Args:
            waiter: no other thread waits for it.
            spin: whether to watch for its answer first.
        """
        try:
            if spin and not waiter.ready and self._patience.pays and not self._spinning:
                self._spin(waiter)
            while not waiter.ready:
                self._sleep(waiter)
        except BaseException:
            self.abandon(waiter)
            raise
        if self._sleepers and self._leader is None:
            with self._lock:
                self._begin()
                self._hand_over()
                self._busy = False

    def abandon(self, waiter: Waiter) -> None:
        """Abandon a waiter's request."""
        with self._lock:
            self._begin()
            if waiter.asleep:
                waiter.asleep = False
                del self._sleepers[waiter]
            if self._leader is waiter:
                self._leader = None
            if not self.closed:
                waiter.fail(Interrupted("nobody waits for this request any more"))
                if self._closing and self._leader is None:
                    self._detach()
            self._hand_over()
            self._busy = False
        self.callbacks.deliver()

    def _spin(self, waiter: Waiter) -> None:
        """Watch for answers instead of sleeping.

        What is asked of a core that idles starts late, and a core that waits here does not idle.
        The yield is for where there is no other core: then the engine runs on this one.
        """
        self._spinning = True
        try:
            until_ns = self.clock() + self._patience.limit_ns
            while not waiter.ready and self._leader is None and self.clock() < until_ns:
                with self._lock:
                    self._begin()
                    if self._refusal is None and self.slots.lane.has_news:
                        self.slots.collect()
                    self._busy = False
                os.sched_yield()
        finally:
            self._spinning = False
        self.callbacks.deliver()

    def _sleep(self, waiter: Waiter) -> None:
        with self._lock:
            self._begin()
            now_ns = self.clock()
            leads, signal = False, None
            if not waiter.ready:
                leads = self._leader is None and (waiter is not self._standby or self._deferred > 0)
                if leads:
                    self._leader = waiter
                    self._until_ns = min(self._earliest_ns, now_ns + SWEEP_NS)
                else:
                    signal = waiter.signal
                    if signal is None:
                        signal = waiter.signal = threading.Lock()
                        signal.acquire()
                    waiter.asleep = True
                    self._sleepers[waiter] = None
                    self._hand_over()
            self._busy = False
        if leads:
            self._watch(waiter, max(self._until_ns - now_ns, 0))
        elif signal is not None:
            self._follow(waiter, signal, now_ns)

    def _watch(self, waiter: Waiter, limit_ns: int) -> None:
        """Lead: sleep until there is news of any kind, and hand it out."""
        found = [fd for fd, _ in self._poll.poll(limit_ns / 1e6)]
        if self._bell.fileno() in found:
            # The rings are taken before looking: one that comes from here on means another look.
            self._bell.hush()
        # Answers stand there for which no bell rings.
        missed = not found and self.slots.lane.has_news and not self._bell.wait(_GRACE_S)
        ended = self._life in found or (not found and not self._segment.alive)
        with self._lock:
            self._begin()
            self._leader = None
            if self._refusal is None:
                if missed:
                    self.slots.lane.counters.add(LaneCounter.MISSED_WAKEUPS)
                self.slots.collect()
                if ended:
                    self._engine_ended()
                self._expire()
            if self._closing:
                self._detach()
            if self.callbacks:
                # Functions of the program's own come next, and may take long.
                self._hand_over()
            self._busy = False
        self.callbacks.deliver()

    def _follow(self, waiter: Waiter, signal: threading.Lock, now_ns: int) -> None:
        limit_s = max(waiter.deadline_ns - now_ns, 0) / 1e9 if waiter.deadline_ns < NEVER else -1.0
        if signal.acquire(timeout=limit_s):
            return
        with self._lock:
            self._begin()
            if waiter.asleep:
                waiter.asleep = False
                del self._sleepers[waiter]
            else:
                signal.acquire()
            if self._refusal is None:
                # Who leads may be held up, by a signal handler for example.
                self.slots.collect()
            self._expire()
            self._busy = False
        self.callbacks.deliver()

    def expect(self, deadline_ns: int) -> None:
        """Have the waiters with this deadline fail at it, which may be the earliest now."""
        self._earliest_ns = min(deadline_ns, self._earliest_ns)
        if self._leader is not None and deadline_ns < self._until_ns:
            self._bell.wake()

    def _expire(self) -> None:
        now_ns = self.clock()
        if now_ns < self._earliest_ns:
            return
        overdue = [waiter for waiter in self._waiters if waiter.deadline_ns <= now_ns]
        if overdue:
            self.slots.lane.counters.add(LaneCounter.TIMEOUTS, len(overdue))
        for waiter in overdue:
            waiter.expired()
        self._earliest_ns = min((w.deadline_ns for w in self._waiters), default=NEVER)

    def _engine_ended(self) -> None:
        self._end(EngineGone("the engine has stopped, and the request with it"))

    def _end(self, refusal: RequestError) -> None:
        self._refusal = refusal
        for waiter in list(self._waiters):
            waiter.fail(again(refusal))

    def _hand_over(self) -> None:
        """Have somebody lead, where nobody does and somebody has to: all who led see to it."""
        if self._leader is not None:
            return
        for waiter in self._sleepers:
            if waiter is not self._standby:
                self.wake(waiter)
                return
        if self._deferred and self._standby is not None:
            self.wake(self._standby)

    def _begin(self) -> None:
        """Enter the locked section; repair the lane if another thread was interrupted in it."""
        if self._busy:
            self._take_over()
        self._busy = True

    def _take_over(self) -> None:
        if self._refusal is None:
            self.slots.take_over()
        for waiter in list(self._waiters):
            waiter.lost(Interrupted("another thread was interrupted amid its call; send it again"))
            if waiter in self._waiters:
                # It had its answer, and its thread does not know yet.
                self.over(waiter)
        self._deferred = 0

    def stand_by(self) -> None:
        """See to it that a thread waits for what nobody else waits for."""
        if self._standby is None:
            with self._lock:
                self._start_thread()

    def _start_thread(self) -> None:
        if self._standby is None and self._refusal is None:
            standby = Waiter(NEVER)
            keep = threading.Thread(
                target=self._keep_watch, args=(standby,), name="ringbatch client", daemon=True
            )
            self._standby = standby
            try:
                keep.start()
            except BaseException:
                self._standby = None
                raise

    def _keep_watch(self, standby: Waiter) -> None:
        try:
            while not standby.ready:
                self._sleep(standby)
        except BaseException:
            self._replace(standby)
            raise

    def _replace(self, standby: Waiter) -> None:
        """Replace the client's own thread, which ends by an exception."""
        with self._lock:
            self._begin()
            if self._leader is standby:
                self._leader = None
            if standby.asleep:
                standby.asleep = False
                del self._sleepers[standby]
            self._standby = None
            if self._closing:
                self._detach()
            try:
                self._start_thread()
            except RuntimeError:
                for waiter in [waiter for waiter in self._waiters if waiter.deferred]:
                    waiter.fail(Interrupted("the thread that waited for the answer has ended"))
            self._busy = False
        self.callbacks.deliver()

    def close(self) -> None:
        """Give up what is in flight, and leave the lane to the next."""
        with self._lock:
            self._begin()
            if not self._closing:
                self._closing = True
                if self._refusal is None:
                    self._end(ClientClosed("the client was closed"))
                if self._standby is not None:
                    self._standby.ready = True
                    self.wake(self._standby)
                if self._leader is None:
                    self._detach()
                else:
                    self._bell.wake()
            self._busy = False
        self.callbacks.deliver()
        self._detached.wait(SWEEP_NS / 1e9)

    @property
    def draining(self) -> bool:
        """True if the engine is to stop, and takes nothing more."""
        try:
            # Every call looks here: suppress() takes longer than all the rest.
            return bool(self._words[_DRAINING_WORD])
        except ValueError:  # the memory was let go of
            return self._closer is not None

    def close_when_answered(self) -> None:
        """Close once nothing is in flight; nothing more is sent, because the engine stops."""
        with self._lock:
            self._begin()
            self._closer = ClosingWaiter(self.close)
            if not self._waiters:
                self.callbacks.add(self._closer)
            self._busy = False
        self.callbacks.deliver()

    def forsake(self, waiter: Waiter | None = None) -> None:
        """Close the channel or abandon a waiter that was garbage-collected, in any thread."""
        end = self.close if waiter is None else partial(self.abandon, waiter)
        if self._lock.locked():
            # This thread may be the one that holds it.
            short_thread("the end of a client", end)
        else:
            end()

    def _detach(self) -> None:
        if not self.closed:
            self._bell.close()
            self._doorbell.close()
            os.close(self._life)
            self._segment.detach()
            self.closed = True
            self._detached.set()

    def disown(self) -> None:
        """Touch nothing of the parent's from now on, in a forked child."""
        self._refusal = ClientClosed(
            f"this client belongs to process {os.getppid()}, from which this one was forked; "
            "make another here"
        )
        if not self.closed:
            self._bell.close()
            self._doorbell.close()
            os.close(self._life)
            self._segment.disown()
        # The parent's other threads may have held these, and are not here to release them.
        self._lock, self._busy, self._closing = threading.Lock(), False, True
        self.callbacks = CallbackQueue()
        self.closed = True
        self._detached = threading.Event()
        self._detached.set()


_CHANNELS: Final[weakref.WeakSet[Channel]] = weakref.WeakSet()


def _disown_all() -> None:
    for channel in list(_CHANNELS):
        channel.disown()


os.register_at_fork(after_in_child=_disown_all)
