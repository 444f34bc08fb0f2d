"""A module that a model file imports."""


def tripled(number: int) -> int:
    return 3 * number
