"""Work of a frontend's gateway at a deadline: it does not grow with the requests that wait."""

import orjson
import pytest
from bytecodes import SLACK, bytecodes, no_bytecodes
from frontend_harness import SECOND_NS, FrontendHarness, untyped

pytestmark = no_bytecodes
APART_NS = 4_000_000


def at_a_deadline(requests: int, timeout_ns: int) -> int:
    """The work at the second of many deadlines, which come one after the other."""
    harness = FrontendHarness(untyped(timeout_ns=60 * SECOND_NS), slots=256, lane_bytes=1 << 20)
    for number in range(requests):
        body, reply = orjson.dumps({"instances": [number]}), harness.replies.to(number)
        harness.service.predict(harness.name, body, reply, timeout_ns + APART_NS * number)
    harness.loop.turn()
    harness.loop.advance(timeout_ns + APART_NS // 2)
    assert list(harness.replies.got) == [0]
    done = bytecodes(lambda: harness.loop.advance(APART_NS))
    assert list(harness.replies.got) == [0, 1]
    return done


@pytest.mark.parametrize("timeout_ns", [SECOND_NS // 2, 5 * SECOND_NS // 2])
def test_a_deadline_looks_at_no_other_request(timeout_ns: int) -> None:
    few, many = at_a_deadline(4, timeout_ns), at_a_deadline(128, timeout_ns)
    assert many < SLACK * few
