"""Control address of an engine with one model, and subscribers of its page."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from falcon.testing import TestClient
from segment_fixture import local_segment, spec

from ringbatch.frontend.metrics.control_app import create_control_app
from ringbatch.frontend.page.history import History
from ringbatch.frontend.page.subscribers import Subscriber, Subscribers
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.segment import Segment


def engine(*models: ModelSpec) -> Segment:
    """The memory of one with these models, or with model `a`."""
    return local_segment(*(models or (spec(0, name="a"),)), lanes=2)


def client(keys: ApiKeys | None = None, subscribers: Subscribers | None = None) -> TestClient:
    """Return a test client of the control address."""
    subscribers = subscribers or Subscribers(History())
    return TestClient(create_control_app(engine(), "1.2.3", subscribers, keys))


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in an event loop of its own; the limit is a watchdog."""
    asyncio.run(asyncio.wait_for(test, 60))


async def next_events(subscriber: Subscriber) -> bytes:
    """Return the next event of a subscriber's stream."""
    return (await anext(subscriber)).serialize()


def admitted(subscribers: Subscribers, after_ms: int = 0) -> Subscriber:
    """Return an admitted subscriber that has seen all events until `after_ms`."""
    subscriber = subscribers.admit(after_ms, set())
    assert subscriber is not None
    return subscriber
