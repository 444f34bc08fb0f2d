"""The headers in which a client may send its API key; what comes in them is passed on to nobody."""

from typing import Final

AUTHORIZATION: Final = "authorization"
KEY_HEADER: Final = "x-api-key"
KEY_HEADERS: Final = (AUTHORIZATION, KEY_HEADER)
