"""Orders for the process that runs LoadGen, and its reports. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from ringbatch.bench.load.exchange import Requests
from ringbatch.bench.load.target import Target
from ringbatch.bench.loadgen.judgement import Sent
from ringbatch.bench.loadgen.plan import Mode, Plan

_REST_S: Final = 2e-4


@dataclass(frozen=True)
class Order:
    """One run.

    Attributes:
        target: where queries go.
        requests: what is sent; LoadGen's sample n stands for number n modulo these.
        plan: what LoadGen is told.
        folder: for its logs.
        connections: that may be open at once.
        patience_s: how long answers are waited for when all is issued.
    """

    target: Target
    requests: Requests
    plan: Plan
    folder: Path
    connections: int
    patience_s: float

    @property
    def keeps_answers(self) -> bool:
        """True if LoadGen logs the answers."""
        return self.plan.mode is Mode.ACCURACY

    @property
    def rest_s(self) -> float:
        """Seconds that LoadGen's thread rests after each call: a fiftieth of the limit at most."""
        return min(_REST_S, self.plan.limit_ms / 50e3)

    @property
    def late_ns(self) -> int:
        """After this long an answer is later than the limit, by a tenth and more."""
        return int(self.plan.limit_ms * 1.1e6) + 1_000_000

    @property
    def patience_ns(self) -> int:
        """`patience_s`, in nanoseconds."""
        return int(self.patience_s * 1e9)

    def packed(self) -> list[bytes]:
        """As frames, for another process; without the right answers, which it has no use for."""
        plain = {
            "target": self.target.as_object(),
            "plan": self.plan.as_object(),
            "folder": str(self.folder),
            "connections": self.connections,
            "patience_s": self.patience_s,
        }
        return [orjson.dumps(plain), self.requests.call_head, *self.requests.messages]

    @classmethod
    def unpacked(cls, frames: Sequence[bytes]) -> "Order":
        """Back from `packed`."""
        plain: dict[str, Any] = orjson.loads(frames[0])
        return cls(
            Target.from_object(plain["target"]),
            Requests(frames[2:], (), frames[1]),
            Plan.from_object(plain["plan"]),
            Path(plain["folder"]),
            plain["connections"],
            plain["patience_s"],
        )


def packed(sent: Sent) -> list[bytes]:
    """Return the sender's figures as frames for another process."""
    return [orjson.dumps(asdict(sent), option=orjson.OPT_NON_STR_KEYS)]


def unpacked(frames: Sequence[bytes]) -> Sent:
    """Back from `packed`."""
    plain = orjson.loads(frames[0])
    statuses = {int(status): count for status, count in plain["statuses"].items()}
    return Sent(**{**plain, "statuses": statuses})
