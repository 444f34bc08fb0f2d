"""Expansion of compressed bodies on the event loop, step by step."""

import asyncio

from ringbatch.frontend.http.body_budget import BodyBudget, Holding
from ringbatch.frontend.http.content_coding import Expander


async def expand(expander: Expander, data: bytes, holding: Holding) -> None:
    """Expand one more piece of a body, with turns for others between its steps.

    The expanded bytes count in the budget of the process.

    Raises:
        InvalidRequest, RequestTooLarge: as `Expander.steps`.
        Overloaded: there is no room for it.
    """
    for _ in expander.steps(data):
        holding.grow(len(expander))
        await asyncio.sleep(0)
    holding.grow(len(expander))


async def expanded(coding: str, data: bytes, max_bytes: int, budget: BodyBudget) -> bytes:
    """Return a whole body expanded, as `expand` does; until then the body itself counts too.

    Raises:
        InvalidRequest: also if its end is missing.
        RequestTooLarge, Overloaded: as `expand`.
    """
    with budget.holding() as packed, budget.holding() as holding:
        packed.grow(len(data))
        expander = Expander(coding, max_bytes)
        await expand(expander, data, holding)
        return bytes(expander.finish())
