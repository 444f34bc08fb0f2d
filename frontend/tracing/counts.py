"""What is counted of traces, for whoever shows it."""

from collections.abc import Mapping
from typing import Protocol


class TraceCounts(Protocol):
    """Since this process began."""

    @property
    def exported(self) -> int:
        """Traces that were sent."""

    @property
    def dropped(self) -> Mapping[str, int]:
        """Those that were not, by the reason."""
