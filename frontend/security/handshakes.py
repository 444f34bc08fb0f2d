"""Failed TLS hand-shakes: their number, and their reasons in the log.

If a hand-shake fails, event loops close the connection silently, before any of our protocols sees
it. So `Handshake` watches each hand-shake in the object through which OpenSSL makes it.
"""

import logging
import ssl
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

log = logging.getLogger("ringbatch.frontend")

LOG_EVERY_S: Final = 60.0
_CUT_OFF: Final = "the client hung up, or took too long"
_WORDS: Final = {
    "HTTP_REQUEST": "the client spoke plain HTTP",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client showed no certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust this certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not trust this certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not trust this certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client takes this certificate for expired",
    "UNSUPPORTED_PROTOCOL": "the client speaks no TLS 1.2 or 1.3",
}
"""Causes in words, for those of OpenSSL's reasons that have a clear cause."""


class FailedHandshakes:
    """Counter of failed hand-shakes, which logs their reasons at most once in `LOG_EVERY_S`.

    Attributes:
        total: the number of failures since the process began.
        count: callback for the number of failures since its last call; does nothing until it is
            set.

    Args:
        clock: returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.total = 0
        self.count: Callable[[int], None] = lambda _failed: None
        self._clock = clock
        self._counted = 0
        self._reasons: Counter[str] = Counter()
        self._quiet_until_s = 0.0

    def add(self, reason: str) -> None:
        """Note a failure, and do nothing else: the garbage collector may call this."""
        self.total += 1
        self._reasons[reason] += 1

    def look(self) -> None:
        """Count and log new failures; the server calls this once a second."""
        if self.total > self._counted:
            new, self._counted = self.total - self._counted, self.total
            self.count(new)
        if self._reasons and self._clock() >= self._quiet_until_s:
            reasons, self._reasons = self._reasons, Counter()
            self._quiet_until_s = self._clock() + LOG_EVERY_S
            summary = ", ".join(f"{reason} ({count})" for reason, count in reasons.most_common())
            log.warning("TLS hand-shakes failed: %s", summary)


class Handshake(ssl.SSLObject):
    """TLS object of one connection, which reports a failed hand-shake.

    Attributes:
        failed: the counter of failures; it is set before the hand-shake begins.
    """

    failed: FailedHandshakes
    _steps = 0
    _over = False

    def do_handshake(self) -> None:
        """Go on with the hand-shake; the event loop calls this whenever bytes have come."""
        self._steps += 1
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            self._over = True
            self.failed.add(reason_of(error))
            raise
        self._over = True

    def __del__(self) -> None:
        # The first step comes before any bytes. A client that only probes the port causes no other
        # step, and no failure.
        if self._steps > 1 and not self._over:
            self.failed.add(_CUT_OFF)


def reason_of(error: ssl.SSLError) -> str:
    """Return the reason of a failed hand-shake, in words that never come from the client."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not good: {error.verify_message}"
    reason: str = getattr(error, "reason", None) or "unknown"
    return _WORDS.get(reason, reason.lower().replace("_", " "))
