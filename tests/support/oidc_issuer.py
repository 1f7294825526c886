"""A small OpenID Connect issuer: code flow with PKCE, as a client's tests need it."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from aiohttp.test_utils import TestServer
from bearer_tokens import RSA, jwk, token


@dataclass
class OidcIssuer:
    """Signs everybody in who asks, with the claims that a test gives it.

    Attributes:
        claims: Of the tokens, beside issuer, audience and nonce.
        denies: What it answers instead of a code.
        nonce: In place of the one that it was asked for.
    """

    client_id: str = "console"
    client_secret: str = "of-the-console"  # noqa: S105  # a test's
    redirect_url: str = "http://127.0.0.1/ui/sign-in/callback"
    claims: dict[str, Any] = field(default_factory=dict)
    denies: str = ""
    nonce: str = ""
    url: str = ""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    async def metadata(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
            }
        )

    async def keys(self, _: web.Request) -> web.Response:
        return web.json_response({"keys": [jwk(RSA, "k1")]})

    async def authorize(self, request: web.Request) -> web.Response:
        asked = dict(request.query)
        assert asked["client_id"] == self.client_id
        assert asked["redirect_uri"] == self.redirect_url
        assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
        assert "openid" in asked["scope"].split()
        code = token_urlsafe(8)
        self.codes[code] = asked
        answer = {"error": self.denies} if self.denies else {"code": code, "iss": self.url}
        query = urlencode({**answer, "state": asked["state"]})
        return web.Response(status=302, headers={"Location": f"{self.redirect_url}?{query}"})

    async def give_token(self, request: web.Request) -> web.Response:
        form = await request.post()
        pair = f"{self.client_id}:{self.client_secret}".encode()
        known = f"Basic {base64.b64encode(pair).decode()}"
        asked = self.codes.pop(str(form.get("code")), None)
        verifier = str(form.get("code_verifier")).encode()
        challenge = base64.urlsafe_b64encode(sha256(verifier).digest()).rstrip(b"=").decode()
        if (
            asked is None
            or request.headers.get("Authorization") != known
            or form.get("redirect_uri") != asked["redirect_uri"]
            or challenge != asked["code_challenge"]
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        nonce = self.nonce or asked["nonce"]
        id_token = token(iss=self.url, aud=self.client_id, nonce=nonce, **self.claims)
        return web.json_response(
            {"access_token": "opaque", "token_type": "Bearer", "id_token": id_token}
        )


@asynccontextmanager
async def oidc_issuer() -> AsyncIterator[OidcIssuer]:
    issuer = OidcIssuer()
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", issuer.metadata)
    app.router.add_get("/authorize", issuer.authorize)
    app.router.add_post("/token", issuer.give_token)
    app.router.add_get("/jwks", issuer.keys)
    async with TestServer(app) as server:
        issuer.url = str(server.make_url("/")).rstrip("/")
        yield issuer
