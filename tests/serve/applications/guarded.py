"""An application of Starlette that guards all it serves, ringbatch's endpoints too."""

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from ringbatch.frontend import endpoints

TOKEN = "of-the-application"


async def guard(request: Request, go_on: RequestResponseEndpoint) -> Response:
    if request.headers.get("x-token") != TOKEN:
        return Response("who are you?", 403)
    return await go_on(request)


async def greeting(_request: Request) -> JSONResponse:
    return JSONResponse("welcome")


app = Starlette(
    middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)],
    routes=[Route("/", greeting), Mount("/below", endpoints), Mount("/", endpoints)],
)
