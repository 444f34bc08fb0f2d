"""Local and Ray placement of a model's workers. Pure.

Workers have places in an order, and those that run always have the first of them. So if the load
wants more workers, those here start first. If it wants fewer, those elsewhere go first.
"""

Count = int | tuple[int, int]
"""A number of workers, or the fewest and the most."""


def fewest(count: Count) -> int:
    """Return the smaller number of a configured count or range."""
    return count[0] if isinstance(count, tuple) else count


def most(count: Count) -> int:
    """Return the larger number of a configured count or range."""
    return count[1] if isinstance(count, tuple) else count


def in_ray(here: Count, elsewhere: Count) -> tuple[bool, ...]:
    """Return for each place in order whether its worker drives an actor.

    Args:
        here: workers that run on this host.
        elsewhere: workers whose model an actor holds.
    """
    return (
        *(False for _ in range(fewest(here))),
        *(True for _ in range(fewest(elsewhere))),
        *(False for _ in range(most(here) - fewest(here))),
        *(True for _ in range(most(elsewhere) - fewest(elsewhere))),
    )


def agree(before: tuple[bool, ...], after: tuple[bool, ...]) -> bool:
    """Return whether workers with places of the one may keep them in the other."""
    return all(one == other for one, other in zip(before, after, strict=False))
