"""The application with pass-through of all other paths to another server."""

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import falcon.asgi
from falcon.asgi import Request, Response
from falcon.routing import CompiledRouter

from ringbatch.frontend.proxy.agent_probe import question
from ringbatch.frontend.proxy.pass_through import Judgement, PassThrough
from ringbatch.frontend.proxy.routing import (
    Find,
    has_route,
    is_for_sidecar,
    is_probe,
    is_ready_path,
)
from ringbatch.frontend.request.service import Service
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.shm.host.key_headers import AUTHORIZATION, KEY_HEADER, KEY_HEADERS


def with_pass_through(
    app: falcon.asgi.App[Request, Response],
    router: CompiledRouter,
    service: Service,
    server: str,
    keys: ApiKeys | None = None,
) -> PassThrough:
    """Return an application that passes on requests with paths of the other server.

    Args:
        app: ours.
        router: the application's router.
        service: the models.
        server: the other one, ``http://HOST:PORT``.
        keys: those of which a client must send one; None to serve every client.
    """

    def parameters(path: str) -> Mapping[str, str] | None:
        found = router.find(path)
        return None if found is None else found[2]

    ours: Judgement = is_for_sidecar
    probe: Judgement = is_probe
    # KServe sets the variable for its agent alone, which a sidecar replaces.
    asked = question(os.environ) if service.origins.any_path else None
    if not service.origins.any_path:
        ours, probe = partial(_has_route, parameters, service), is_ready_path
    if keys is None:
        return PassThrough(app, server, ours, probe, service.expect_ready, (), asked)
    ours = _or_without_key(ours, keys)
    withheld = [name.encode() for name in KEY_HEADERS]
    return PassThrough(app, server, ours, probe, service.expect_ready, withheld, asked)


def _has_route(find: Find, service: Service, scope: Mapping[str, Any]) -> bool:
    """Return whether ringbatch serves a path, by the models that it has now."""
    models = service.models
    typed = {name for name, model in models.items() if model.spec.forward is None}
    return has_route(find, models, typed, service.serves_texts_at)(scope)


def _or_without_key(ours: Judgement, keys: ApiKeys) -> Judgement:
    """Return a judgement that also keeps requests without a key, to refuse them."""

    def judged(scope: Mapping[str, Any]) -> bool:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        authorization, key = headers.get(AUTHORIZATION.encode()), headers.get(KEY_HEADER.encode())
        return not keys.allow(authorization, key) or ours(scope)

    return judged
