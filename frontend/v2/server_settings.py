"""Settings of tracing and logging that Triton's extensions show, as far as they exist here. Pure.

They are those of its configuration and hold until a restart. A request that sets the present
value, or clears what it has not set, succeeds. Any other is refused, so that no tool measures with
settings that it did not choose.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ringbatch.frontend.codec.json_to_tensor import shown
from ringbatch.frontend.codec.outcome import NotSupported
from ringbatch.shm.errors import InvalidRequest

Trace = dict[str, str | list[str]]
Log = dict[str, bool | int | str]

_WHERE: Final = {
    "trace_level": "set [server] trace_endpoint",
    "trace_rate": "set [server] trace_sample",
    "log_info": "set [server] log_level",
    "log_warning": "set [server] log_level",
    "log_verbose_level": "set [server] log_level",
    "log_format": "set [server] log_format",
}
"""Remedies for the operator."""


class ServerSettings(NamedTuple):
    """Settings of tracing and logging.

    Attributes:
        traced: True if requests are traced.
        trace_share: of the requests whose clients do not decide it, 0 to 1.
        level: the least of Python's that is logged.
    """

    traced: bool = False
    trace_share: float = 0.0
    level: int = logging.INFO

    def trace(self) -> Trace:
        """Return Triton's trace settings."""
        traced = self.traced and self.trace_share > 0
        return {
            "trace_level": ["TIMESTAMPS" if self.traced else "OFF"],
            "trace_rate": str(round(1 / self.trace_share)) if traced else "0",
            "trace_count": "-1",
            "log_frequency": "0",
            "trace_file": "",
            "trace_mode": "opentelemetry",
        }

    def log(self) -> Log:
        """Return Triton's log settings."""
        return {
            "log_file": "",
            "log_info": self.level <= logging.INFO,
            "log_warning": self.level <= logging.WARNING,
            "log_error": self.level <= logging.ERROR,
            "log_verbose_level": int(self.level <= logging.DEBUG),
            "log_format": "default",
        }


def expect_in_force(wanted: Any, in_force: Mapping[str, Any]) -> None:
    """Return if what a request sets holds already.

    Args:
        wanted: by name, its values; None, or an empty list, for one that it clears.
        in_force: as `ServerSettings` has them.

    Raises:
        InvalidRequest: it is no object, or names a setting that there is not.
        NotSupported: another value holds, and cannot be changed now.
    """
    if not isinstance(wanted, Mapping):
        raise InvalidRequest(f"the settings are {shown(wanted)}, not an object")
    for name, value in wanted.items():
        if name not in in_force:
            known = ", ".join(in_force)
            raise InvalidRequest(f"there is no setting {shown(name)}; there are {known}")
        held = in_force[name]
        if value in (None, [], held, [held]) or [value] == held:
            continue
        advice = f"; {_WHERE[name]} and restart" if name in _WHERE else ""
        raise NotSupported(
            f"{name} is {_text(held)} and cannot be set to {_text(value)} while the server "
            f"runs{advice}"
        )


def _text(value: Any) -> str:
    return ", ".join(map(shown, value)) if isinstance(value, list) else shown(value)
