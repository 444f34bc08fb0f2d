"""Refusals of requests for which a lane has no room: counted and worded in one place."""

from ringbatch.frontend.codec.limit_messages import no_room_now
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.errors import Overloaded
from ringbatch.shm.lane import Lane


def no_room_in(lane: Lane, requests: int = 1) -> Overloaded:
    """Count requests that have just found no room in a lane, and return their error."""
    aside = bool(lane.spare_slots)
    lane.counters.add(LaneCounter.REFUSED, requests)
    if aside:
        lane.counters.add(LaneCounter.REFUSED_AT_SHARE, requests)
    return no_room_now(None if lane.has_slots else lane.capacity, lane.lane_bytes, aside=aside)
