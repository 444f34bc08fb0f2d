"""The engine for programs on its host: numpy arrays into the ring and out of it, without HTTP.

    from ringbatch.frontend import Client

    with Client() as client:                            # Client("prod") where several engines run
        y = client.infer("mnist", x)                    # x: array [rows, ...]
        future = client.infer_async("mnist", x)         # a concurrent.futures.Future
        y = await asyncio.wrap_future(future)           # in a coroutine
        async for part in client.stream_async("mnist", x): ...
        outputs, errors = client.infer_many("mnist", x) # each row a request of its own

A client's requests share batches with those that come over HTTP and gRPC. It works where the engine
runs as the same user, and holds one of the lanes that [server] client_lanes sets aside.
"""

import asyncio
import os
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from ringbatch.frontend.client.arguments import (
    account_of,
    expect_engine,
    expect_model_name,
    spin_ns,
)
from ringbatch.frontend.client.arrays import Array, RowCodec
from ringbatch.frontend.client.bulk import BulkRequest, Many
from ringbatch.frontend.client.calls import (
    AsyncRequest,
    ClientModel,
    ClientRequest,
    Divider,
    UnsentRequest,
)
from ringbatch.frontend.client.channel import Channel
from ringbatch.frontend.client.engines import attach
from ringbatch.frontend.client.errors import ClientClosed, EngineGone
from ringbatch.frontend.client.loop_waker import running_waker
from ringbatch.frontend.client.session import Session, models_of, refused
from ringbatch.frontend.client.slots import Slots
from ringbatch.frontend.client.streaming import LoopRequestInParts, RequestInParts
from ringbatch.frontend.client.waiter import Waiter
from ringbatch.frontend.codec.model_address import no_such_model
from ringbatch.frontend.codec.outcome import RULES
from ringbatch.frontend.codec.part_limits import PartLimits, limits_asked
from ringbatch.frontend.codec.payload import Part
from ringbatch.frontend.codec.request_timeout import limit_ns
from ringbatch.shm.engines import attached, eligible, running
from ringbatch.shm.errors import Draining, RequestError, StartupError
from ringbatch.shm.host.platform import require_supported_machine
from ringbatch.shm.lane import Lane
from ringbatch.shm.model_readiness import refusal
from ringbatch.shm.spinning import where_cpus_allow

P = TypeVar("P")
T = TypeVar("T")
C = TypeVar("C", bound=RequestInParts)
_SPIN_US: Final = 150


class Client:
    """A lane of a running engine.

    All methods may be called by several threads at once, but by no signal handler. The arrays given
    must not change until the answer is there. Where the engine stops, calls raise `EngineGone`; the
    first call after another of that name has started goes to that. Where another engine takes its
    place while it serves (``ringbatch handover``), no call fails: those that are under way are
    answered, and the next goes to the new one. A process id and `segment` mean one engine alone.

    A client belongs to the process that made it. One client is enough for a process.

    For an argument of another kind than documented all methods raise `TypeError`, and `ValueError`
    for a time or a class that there is not.

    Args:
        engine: its name, or the process id of its supervisor; needed where several run. Without it
            the only one is meant, under any name, after the end of the first as well.
        segment: the name of its shared memory, which also says which one.
        spin_us: microseconds that a thread watches for its answer before it sleeps, where answers
            usually come as fast; 0 never. It saves the time that waking up takes, for a core.
        priority: the class of its requests: interactive, normal or bulk. All of a program's
            requests are one client's among those that share the models.

    Raises:
        StartupError: no engine runs, or several, or it is another user's.
        NoFreeLane: all lanes for clients are held.
    """

    def __init__(
        self,
        engine: str | int | None = None,
        *,
        segment: str | None = None,
        spin_us: int = _SPIN_US,
        priority: str = "normal",
    ) -> None:
        require_supported_machine()
        expect_engine(engine, segment)
        self._account = account_of(priority)
        self._engine, self._segment = engine, segment
        self._spin_ns = where_cpus_allow(spin_ns(spin_us))
        self._opening = threading.Lock()
        self._closed = False
        self._former: list[Channel] = []
        """Channels to superseded engines, whose answers are still to come."""
        self._open()
        _CLIENTS.add(self)

    def _open(self) -> None:
        if self._segment is not None:
            self._session = self._session_with(self._segment)
        else:
            self._session = attached(self._engine, self._session_with)
        self._forsaken = weakref.finalize(self, self._session.channel.forsake)

    def _session_with(self, name: str) -> Session:
        segment, life = attach(name)
        with ExitStack() as undo:
            undo.callback(segment.detach)
            undo.callback(os.close, life)
            doorbell = segment.collector_doorbell()
            undo.callback(doorbell.close)
            lane = Lane.attach_as_client(segment, doorbell.wake)
            bell = segment.lane_doorbell(lane.index)
            undo.callback(bell.close)
            slots = Slots(segment, lane, doorbell.wake, time.monotonic_ns)
            channel = Channel(slots, bell, doorbell, life, spin_ns=self._spin_ns)
            session = Session(channel, segment, *models_of(segment))
            slots.divide()
            undo.pop_all()
        return session

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up what is in flight, and leave the lane; afterwards calls raise `ClientClosed`."""
        with self._opening:
            self._closed = True
            self._forsaken.detach()
            channels = [self._session.channel, *self._former]
        # It calls functions of the program's own, which may use the client.
        for channel in channels:
            channel.close()
            channel.callbacks.wait_for_others()

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the engine's models."""
        if self._session.channel.draining:
            with suppress(RequestError):
                self._follow(self._session)
        return tuple(self._kept_up(self._session).models)

    def infer(
        self,
        model: str,
        inputs: Any,
        *,
        timeout_s: float | None = None,
        priority: str | None = None,
    ) -> Any:
        """Run a model.

        Args:
            model: its name.
            inputs: for a model with one input its array [rows, ...], of the input's dtype; for one
                with several a dict of these by name. Without a batch dimension, arrays of the shape
                of one instance. For a model without declared inputs, a list of JSON values. There
                may be more rows than `max_batch_size`.
            timeout_s: seconds until the request is given up; at most, and by default, the model's.
            priority: the class of the request; by default the client's.

        Returns:
            The array of the model's only output, or a dict of arrays by name; or a list.

        Raises:
            InvalidRequest: the inputs are not what the model takes, or it refused them.
                ModelNotFound, ModelNotReady, RequestTooLarge, Overloaded, LimitReached,
                Draining, DeadlineExceeded,
            ModelFailed, WorkerDied: as over HTTP.
            ModelServerAnswered, ModelServerBroken, ModelServerDown: of the runtime http.
            InternalError: a defect of the engine's.
            EngineGone, ClientClosed, Interrupted: there will be no answer.
        """
        account = self._account if priority is None else account_of(priority)
        session, wanted, timeout_ns = self._wanted(model, timeout_s)
        parts = self._parsed(session, wanted, wanted.codec.parse, inputs)
        call = ClientRequest(session.channel, wanted, parts, timeout_ns, account)
        if not self._sent(session, call, wanted):
            return self.infer(model, inputs, timeout_s=timeout_s, priority=priority)
        session.channel.wait(call, spin=True)
        return call.result()

    def infer_async(
        self,
        model: str,
        inputs: Any,
        *,
        timeout_s: float | None = None,
        priority: str | None = None,
    ) -> Future[Any]:
        """Send a request and do not wait.

        Args:
            model, inputs, timeout_s, priority: as for `infer`.

        Returns:
            The answer to come, or one of the errors of `infer`. Cancelled, it abandons the request.
            Functions added to it are called by whichever thread finds the answer, and must not
            wait for other answers.

        Raises:
            InvalidRequest, ModelNotFound, ModelNotReady, Draining, EngineGone, ClientClosed: at
                once, as of `infer`.
        """
        account = self._account if priority is None else account_of(priority)
        session, wanted, timeout_ns = self._wanted(model, timeout_s)
        parts = self._parsed(session, wanted, wanted.codec.parse, inputs)
        session.channel.stand_by()
        call = AsyncRequest(session.channel, wanted, parts, timeout_ns, account)
        if not self._sent(session, call, wanted):
            return self.infer_async(model, inputs, timeout_s=timeout_s, priority=priority)
        return call.future

    def stream(
        self,
        model: str,
        inputs: Any,
        *,
        timeout_s: float | None = None,
        first_part_timeout_s: float | None = None,
        part_gap_timeout_s: float | None = None,
        priority: str | None = None,
    ) -> Iterator[Any]:
        """Run a model, and yield its answer in parts, as the model makes them.

        The first look at the iterator sends the request. It ends if the iterator is closed, or if
        the program has it no more.

        Args:
            model, inputs, timeout_s, priority: as for `infer`, but for one batch at most.
            first_part_timeout_s: seconds until the first part is to be there; at most, and by
                default, the model's. A model that has no parts ignores it.
            part_gap_timeout_s: the same from each part to the next.

        Yields:
            Each part, as `infer` returns an answer. A model that has no parts yields its answer.

        Raises:
            AnswerCutOff: a worker died when a part was there, and the model is not resumable.
            RequestError: any other of `infer`, also behind a part.
        """
        limits = first_part_timeout_s, part_gap_timeout_s
        call = self._asked(RequestInParts, model, inputs, timeout_s, limits, priority)
        if call is None:
            yield self.infer(model, inputs, timeout_s=timeout_s, priority=priority)
            return
        try:
            yield from call.each()
        finally:
            call.leave()

    async def stream_async(
        self,
        model: str,
        inputs: Any,
        *,
        timeout_s: float | None = None,
        first_part_timeout_s: float | None = None,
        part_gap_timeout_s: float | None = None,
        priority: str | None = None,
    ) -> AsyncIterator[Any]:
        """Do as `stream` on the event loop of asyncio, which is free until a part has come.

        Args:
            model, inputs, timeout_s, first_part_timeout_s, part_gap_timeout_s, priority: the same.

        Yields:
            As `stream`.

        Raises:
            RequestError: as `stream`.
        """
        limits = first_part_timeout_s, part_gap_timeout_s
        make = partial(LoopRequestInParts, running_waker())
        call = self._asked(make, model, inputs, timeout_s, limits, priority)
        if call is None:
            future = self.infer_async(model, inputs, timeout_s=timeout_s, priority=priority)
            yield await asyncio.wrap_future(future)
            return
        try:
            while (part := call.take()) is not None or not call.ended():
                if part is not None:
                    yield part
                else:
                    # Its waker comes behind anything that has come since the look.
                    await call.news
        finally:
            call.leave()

    def infer_many(
        self,
        model: str,
        inputs: Array,
        *,
        timeout_s: float | None = None,
        priority: str | None = None,
    ) -> Many:
        """Run a model for each row of an array, as if each were a request of its own.

        It gives every instance an answer or an error of its own, where `infer` has one for all, and
        leaves it to the engine how they are put together; `infer` costs less.

        Args:
            model: one with one input and one output, both of a fixed size; of a chain, what its
                steps keep as well.
            inputs: the instances, an array [rows, ...] of the input's dtype.
            timeout_s: seconds until all that have no answer are given up; at most, and by default,
                the model's.
            priority: the class of all of them; by default the client's.

        Returns:
            The outputs, an array [rows, ...], and the errors by row.

        Raises:
            InvalidRequest: the model is no such model, or takes other arrays.
            ModelNotFound, ModelNotReady, Draining, EngineGone, ClientClosed: nothing was sent.
        """
        account = self._account if priority is None else account_of(priority)
        session, wanted, timeout_ns = self._wanted(model, timeout_s)
        channel = session.channel
        codec = self._parsed(session, wanted, RowCodec, wanted.spec)
        rows = self._parsed(session, wanted, codec.rows, inputs)
        bulk = BulkRequest(channel, wanted, codec, rows, timeout_ns, account)
        if not self._sent(session, bulk, wanted):
            return self.infer_many(model, inputs, timeout_s=timeout_s, priority=priority)
        while not bulk.over:
            channel.wait(bulk)
            channel.resume(bulk)
        return bulk.outcome()

    def _wanted(self, model: str, timeout_s: float | None) -> tuple[Session, ClientModel, int]:
        self._expect_open()
        session = self._session
        if session.channel.gone:
            session = self._reopened(session)
        if session.channel.draining:
            self._follow(session)
            session = self._session
        session = self._kept_up(session)
        try:
            wanted = session.models.get(model)
        except TypeError:  # it has no hash
            wanted = None
        if wanted is None:
            expect_model_name(model)
            raise refused(session, None, no_such_model(model, session.models))
        most_ns = wanted.spec.timeout_ns
        return session, wanted, min(limit_ns("timeout_s", timeout_s) or most_ns, most_ns)

    def _expect_open(self) -> None:
        if self._closed:
            raise ClientClosed("the client was closed")

    def _asked(
        self,
        make: Callable[[Channel, ClientModel, tuple[Part, ...], int, int, PartLimits], C],
        model: str,
        inputs: Any,
        timeout_s: float | None,
        limits: tuple[float | None, float | None],
        priority: str | None,
    ) -> C | None:
        """Send a request for parts; return None if its answer has no parts."""
        account = self._account if priority is None else account_of(priority)
        while True:
            session, wanted, timeout_ns = self._wanted(model, timeout_s)
            channel = session.channel
            parts: tuple[Part, ...] = ()
            if wanted.spec.in_parts:
                parts = self._parsed(session, wanted, wanted.codec.parse, inputs)
            if not parts:
                return None
            asked = limits_asked(*limits)
            made = partial(make, channel, wanted, parts, timeout_ns, account)
            call = self._parsed(session, wanted, made, asked)
            channel.stand_by()
            if self._sent(session, call, wanted):
                return call

    @staticmethod
    def _parsed(session: Session, model: ClientModel, parse: Callable[[P], T], inputs: P) -> T:
        try:
            return parse(inputs)
        except RequestError as error:
            session.channel.resume(UnsentRequest(session.channel, model.spec, error))
            raise

    def _sent(self, session: Session, request: Waiter, model: ClientModel) -> bool:
        """Send a request; return False if a successor engine serves, which needs a new one.

        Raises:
            ModelNotReady, Draining, EngineGone, ClientClosed: nothing was sent.
        """
        try:
            taken = session.channel.submit(request, model.takes_word)
        except Draining:
            self._follow(session)
            return False
        if not taken:
            segment, spec = session.segment, model.spec
            error = refusal(segment.words, segment.layout, spec, session.channel.clock())
            raise refused(session, spec, error)
        return True

    def _kept_up(self, session: Session) -> Session:
        """Return the session with the models that serve now; unchanged if the engine has ended."""
        try:
            if session.segment.model_table.number == session.table:
                return session
            with self._opening:
                if self._session is not session:
                    return self._session
                table, models = models_of(session.segment, session.models)
                self._session = session = session._replace(table=table, models=models)
            # Not under the lock: it may call functions of the program's own.
            session.channel.resume(Divider(session.channel))
        except ValueError:  # the memory was let go of: closed, or gone
            pass
        return session

    def _reopened(self, session: Session) -> Session:
        """Return a session with the engine that runs now, if that is another one."""
        if isinstance(self._engine, int) or self._segment is not None:
            raise EngineGone("the engine has stopped")
        # It calls functions of the program's own, which may use the client.
        session.channel.close()
        with self._opening:
            self._expect_open()
            if self._session is session:
                self._forsaken.detach()
                try:
                    self._open()
                except StartupError as error:
                    raise EngineGone(str(error)) from None
            return self._session

    def _follow(self, former: Session) -> None:
        """Open a session with the engine that replaces the one that stops.

        Raises:
            Draining: there is none.
        """
        with self._opening:
            self._expect_open()
            if self._session is not former:
                return
            if isinstance(self._engine, int) or self._segment is not None:
                raise Draining(RULES[Draining].text)
            try:
                with running(self._engine) as found:
                    serving = any(segment.ready_ns for segment in eligible(found))
                if serving:
                    self._open()
            except StartupError:
                serving = False
            if not serving:
                raise Draining(RULES[Draining].text)
            self._former = [channel for channel in self._former if not channel.closed]
            self._former.append(former.channel)
        former.channel.close_when_answered()


_CLIENTS: Final[weakref.WeakSet[Client]] = weakref.WeakSet()


def _renew_locks() -> None:
    """Replace the locks in a forked child, since threads of the parent may have held them."""
    for client in list(_CLIENTS):
        client._opening = threading.Lock()


os.register_at_fork(after_in_child=_renew_locks)
