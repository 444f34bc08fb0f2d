"""Faults of decoders of strangers' bytes, other than crashes."""


class Overrun(AssertionError):
    """It takes more memory or time than it may."""


class Endless(AssertionError):
    """Something goes on for ever, or nothing ends."""


class Difference(AssertionError):
    """Two who should read the same do not."""
