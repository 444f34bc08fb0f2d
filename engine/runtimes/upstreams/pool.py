"""Pool of model servers of one worker: each batch goes to one server, and to another if it may.

A worker writes its own results down for all, and chooses by the results of all, see
`ringbatch.engine.runtimes.upstreams.choice`. A thread looks names up again and probes servers; with
one server at a fixed address there is no choice, and no thread.
"""

import logging
import math
import random
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from ringbatch.engine.models.model import ServerFailed
from ringbatch.engine.runtimes.upstreams.choice import (
    PROBE_NS,
    chosen,
    held_s,
    learned_ns,
    probe_due,
)
from ringbatch.engine.runtimes.upstreams.connection import (
    Answer,
    Bound,
    Lost,
    TooLarge,
    Unreached,
    Upstream,
    answer_bound,
    description_bound,
)
from ringbatch.engine.runtimes.upstreams.names import Endpoint, Names
from ringbatch.shm.forward_envelope import Refusal, refusal_text
from ringbatch.shm.host.background import repeating_thread
from ringbatch.shm.slot import Status
from ringbatch.shm.upstreams import DOWN_AFTER, OwnUpstreams

logger = logging.getLogger("ringbatch.worker")

REFUSALS: Final = (429, 503)
"""Statuses that say that the batch was not run, and may be sent again later."""
_NO_GATEWAY: Final = (502, 504)
"""Statuses of a proxy in front of a server that does not answer."""
_NOT_THERE: Final = (*_NO_GATEWAY, 503)
_UNAVAILABLE: Final = 503
_TURN_S: Final = 0.25
_WAIT_TEXT: Final = "every model server asks for time"


@dataclass(frozen=True, slots=True)
class Manner:
    """Settings of the requests to a model's servers.

    Attributes:
        model: its name, for messages.
        probe: the path of probes.
        always: True if a batch without an answer is sent to another server even if the first may
            have run it.
        tls: the context for servers with TLS.
    """

    model: str
    probe: str
    always: bool = False
    tls: ssl.SSLContext | None = None


class Pool:
    """Pool of several servers.

    Args:
        names: of the servers.
        manner: of requests.
        draw: a random number.
        clock_ns: the monotonic clock.
    """

    def __init__(
        self,
        names: Names,
        manner: Manner,
        draw: Callable[[], float] = random.random,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._names = names
        self._manner = manner
        self._draw = draw
        self._clock_ns = clock_ns
        self._records = OwnUpstreams.alone()
        self._known: tuple[Endpoint, ...] = ()
        self._connections: dict[int, Upstream] = {}
        self._bound: Callable[[], Bound] = description_bound
        self._following = threading.Lock()

    def share(self, records: OwnUpstreams) -> None:
        """Share results with other workers from now on, and choose by theirs too."""
        self._records = records
        self._bound = answer_bound(records.lane_bytes)
        self._known, self._connections = (), {}
        self._follow(endpoints := self._names.endpoints)
        if len(endpoints) != 1 or not self._names.settled:
            repeating_thread(f"the watch of model {self._manner.model}'s servers", self._keep)

    def get(self, target: str, until_ns: int) -> Answer:
        """Return the answer to a GET; raises as `post`."""
        return self._ask(lambda upstream: upstream.get(target, until_ns), until_ns)

    def post(self, target: bytes, headers: bytes, body: bytes, until_ns: int) -> Answer:
        """Return the answer to a POST; see `Upstream.post`.

        If a server ran nothing, the next one gets the batch, each once. With `Manner.always`, so it
        does if that is unknown.

        Raises:
            ServerFailed: there is no whole answer; the text says why.
        """
        return self._ask(lambda upstream: upstream.post(target, headers, body, until_ns), until_ns)

    def _ask(self, ask: Callable[[Upstream], Answer], until_ns: int) -> Answer:
        self._follow(self._names.found(until_ns))
        tried: dict[int, Answer | ServerFailed] = {}
        while (endpoint := self._next(tried)) is not None:
            outcome = self._outcome(endpoint, ask, until_ns)
            tried[endpoint.tag] = outcome
            if not self._may_go_on(outcome):
                break
        if not tried:
            raise self._held()
        refusals = [found for found in tried.values() if isinstance(found, Answer)]
        if isinstance(outcome, Unreached) and refusals:
            outcome = refusals[-1]
        if isinstance(outcome, ServerFailed):
            raise outcome
        return outcome

    def _next(self, tried: dict[int, Answer | ServerFailed]) -> Endpoint | None:
        if len(self._known) == 1:
            return None if tried else self._known[0]
        now_ns = self._clock_ns()
        by_tag = {endpoint.tag: endpoint for endpoint in self._known}
        tag = chosen(self._records.own_states(list(by_tag), now_ns), tried, now_ns, self._draw)
        return None if tag is None else by_tag[tag]

    def _may_go_on(self, outcome: Answer | ServerFailed) -> bool:
        """Return whether another server may get a batch that one has not answered."""
        if isinstance(outcome, Answer):
            return outcome.status in REFUSALS
        return isinstance(outcome, (Unreached, Lost) if self._manner.always else Unreached)

    def _outcome(
        self, endpoint: Endpoint, ask: Callable[[Upstream], Answer], until_ns: int
    ) -> Answer | ServerFailed:
        """Return one server's answer or failure, and write it down."""
        records, tag, before_ns = self._records, endpoint.tag, self._clock_ns()
        records.sent(tag, before_ns)
        try:
            outcome: Answer | ServerFailed = ask(self._connection(endpoint))
        except ServerFailed as failed:
            outcome = failed
        finally:
            records.over()
        now_ns = self._clock_ns()
        if isinstance(outcome, TooLarge):
            self._record_answer(endpoint)
        elif isinstance(outcome, ServerFailed):
            failures = DOWN_AFTER if isinstance(outcome, Unreached) else 1
            if now_ns >= until_ns:
                # The deadline was shorter than the server's time, which is no fault of the server.
                failures = 0
            self._failed(endpoint, str(outcome), failures, of_batch=True)
        elif outcome.status in REFUSALS:
            self._record_answer(endpoint)
            wait_s = held_s(outcome.retry_after, datetime.now(UTC))
            records.refused(tag, now_ns + int(wait_s * 1e9))
        elif outcome.status in _NO_GATEWAY:
            self._failed(endpoint, f"it answered {outcome.status}", 1, of_batch=True)
        else:
            self._record_answer(endpoint)
            records.learned(tag, learned_ns(records.pace_ns(tag), now_ns - before_ns), now_ns)
        return outcome

    def _connection(self, endpoint: Endpoint) -> Upstream:
        found = self._connections.get(endpoint.tag)
        if found is None:
            given_up = partial(self._is_down, endpoint) if self._manner.always else None
            tls, bound = self._manner.tls, self._bound
            found = Upstream(endpoint.address, endpoint.hosts, tls, given_up, bound)
            self._connections[endpoint.tag] = found
        return found

    def _follow(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Use the present servers of the names."""
        if endpoints == self._known:
            return
        with self._following:
            self._records.know({endpoint.tag: endpoint.name for endpoint in endpoints})
            self._known = endpoints
            tags = {endpoint.tag for endpoint in endpoints}
            self._connections = {t: c for t, c in self._connections.items() if t in tags}

    def _held(self) -> ServerFailed:
        """Return the error for a batch that no server takes now."""
        now_ns = self._clock_ns()
        states = self._records.own_states([e.tag for e in self._known], now_ns).values()
        ends_ns = [state.held_until_ns for state in states if state.held_until_ns > now_ns]
        wait_s = math.ceil((min(ends_ns, default=now_ns) - now_ns) / 1e9)
        refusal = Refusal(_UNAVAILABLE, str(max(wait_s, 1)), _WAIT_TEXT)
        return ServerFailed(Status.SERVER_ANSWERED, refusal_text(refusal))

    def _is_down(self, endpoint: Endpoint) -> bool:
        if len(self._known) == 1:
            return False
        now_ns = self._clock_ns()
        return self._records.own_states([endpoint.tag], now_ns)[endpoint.tag].down

    def _failed(self, endpoint: Endpoint, why: str, failures: int, *, of_batch: bool) -> None:
        was_down = self._is_down(endpoint)
        self._records.failed(endpoint.tag, self._clock_ns(), failures, of_batch=of_batch)
        if not was_down and self._is_down(endpoint):
            logger.warning("model %s: %s gets no batch: %s", self._manner.model, endpoint.name, why)
            self._publish_down()

    def _record_answer(self, endpoint: Endpoint) -> None:
        was_down = self._is_down(endpoint)
        self._records.answered(endpoint.tag, self._clock_ns())
        if was_down:
            logger.info("model %s: %s answers again", self._manner.model, endpoint.name)
            self._publish_down()

    def _publish_down(self) -> None:
        tags = [endpoint.tag for endpoint in self._known]
        states = self._records.own_states(tags, self._clock_ns()).values()
        several = len(tags) > 1 and all(state.down for state in states)
        self._records.publish_down(len(tags) if several else 0)

    def _keep(self) -> bool:
        self.turn()
        # Workers that started together should not all look at the same instant.
        time.sleep(_TURN_S * (0.5 + self._draw()))
        return True

    def turn(self) -> None:
        """Look names up and probe servers, if it is time."""
        if self._names.due():
            self._names.refresh(self._clock_ns() + PROBE_NS)
        self._follow(self._names.endpoints)
        endpoints = self._known
        if len(endpoints) > 1:
            now_ns = self._clock_ns()
            states = self._records.own_states([e.tag for e in endpoints], now_ns)
            for endpoint in endpoints:
                if probe_due(states[endpoint.tag], now_ns):
                    self._probe(endpoint)
            self._publish_down()

    def _probe(self, endpoint: Endpoint) -> None:
        now_ns = self._clock_ns()
        self._records.probed(endpoint.tag, now_ns)
        upstream = Upstream(endpoint.address, endpoint.hosts, self._manner.tls)
        try:
            answer = upstream.get(self._manner.probe, now_ns + PROBE_NS)
        except ServerFailed as failed:
            self._failed(endpoint, str(failed), DOWN_AFTER, of_batch=False)
        else:
            if answer.status in _NOT_THERE:
                self._failed(endpoint, f"it answers {answer.status}", DOWN_AFTER, of_batch=False)
            else:
                self._record_answer(endpoint)
        finally:
            upstream.close()
