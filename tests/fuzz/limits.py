"""Faults of decoders of strangers' bytes, other than crashes."""


class Overrun(AssertionError):
    """Excess of memory or time."""


class Endless(AssertionError):
    """Endless work, or a wait without an end."""


class Difference(AssertionError):
    """Difference between two readings that should agree."""
