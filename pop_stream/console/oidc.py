"""Sign-in at an OpenID Connect issuer: the code flow with PKCE, as Authlib has it.

What the issuer answers with is an ID token, and that is all the console keeps: it shows the
token to the API, which checks signature, issuer, audience and times of every one, and says who
the viewer is. So the issuer must be the one whose tokens the API takes.

A sign-in that has begun is bound to the browser that began it, by a cookie of its own, and to
one answer of the issuer. It is forgotten after ten minutes.

Source: OpenID Connect Core 1.0, section 3.1; RFC 7636; RFC 9207.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from secrets import compare_digest, token_urlsafe
from typing import Any, Final

import httpx2
import jwt
import structlog
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.httpx_client import AsyncOAuth2Client

from pop_stream.model.errors import PopStreamError, UnauthenticatedError, UnavailableError

PENDING_S: Final = 600.0
"""How long a sign-in may take at the issuer."""

_MAX_PENDING: Final = 10_000
_METADATA_TTL_S: Final = 600.0
_TIMEOUT_S: Final = 10.0
_ENDPOINTS: Final = ("issuer", "authorization_endpoint", "token_endpoint")

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcConfig:
    """Which issuer, and as which client.

    Attributes:
        issuer: Its URL, below which its metadata are.
        client_secret: None of a public client, which PKCE alone protects.
        redirect_url: Where the issuer sends viewers back to, as it is registered there.
        scopes: With blanks between; `openid` among them.
    """

    issuer: str
    client_id: str
    client_secret: str | None
    redirect_url: str
    scopes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunSignIn:
    """A sign-in that a browser has begun.

    Attributes:
        address: Of the issuer, where the viewer goes now.
        browser: What its cookie must hold when it comes back.
    """

    address: str
    browser: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    verifier: str
    nonce: str
    browser: bytes
    back: str
    until_s: float


class OidcSignIn:
    """Sign-ins that are under way in this process.

    Args:
        config: Which issuer.
        now: A clock in seconds that is never set back.
    """

    def __init__(self, config: OidcConfig, now: Callable[[], float]) -> None:
        self._config = config
        self._now = now
        self._pending: OrderedDict[str, _Pending] = OrderedDict()
        self._metadata: Mapping[str, Any] = {}
        self._metadata_until_s = float("-inf")

    async def begin(self, back: str) -> BegunSignIn:
        """Begin a sign-in; `back` is where the viewer wanted to go.

        Raises:
            UnavailableError: If the issuer does not say where it takes sign-ins.
        """
        metadata = await self._issuer_metadata()
        verifier, nonce, browser = (token_urlsafe(48) for _ in range(3))
        async with self._client() as client:
            address, state = client.create_authorization_url(
                metadata["authorization_endpoint"], code_verifier=verifier, nonce=nonce
            )
        self._forget_old()
        self._pending[state] = _Pending(
            verifier=verifier,
            nonce=nonce,
            browser=_hashed(browser),
            back=back,
            until_s=self._now() + PENDING_S,
        )
        return BegunSignIn(address=address, browser=browser)

    async def finish(self, answer: Mapping[str, str], browser: str) -> tuple[str, str]:
        """The ID token for an issuer's answer, and where the viewer wanted to go.

        Args:
            answer: The query with which the viewer came back.
            browser: What its cookie holds.

        Raises:
            UnauthenticatedError: If the answer belongs to no sign-in of this browser, or the
                issuer refused it.
            UnavailableError: If the issuer does not answer.
        """
        pending = self._pending.pop(answer.get("state", ""), None)
        if (
            pending is None
            or pending.until_s < self._now()
            or not compare_digest(pending.browser, _hashed(browser))
        ):
            msg = "this sign-in was not begun in this browser, or took too long; begin anew"
            raise UnauthenticatedError(msg)
        if "code" not in answer:
            reason = answer.get("error_description") or answer.get("error") or "it says nothing"
            msg = f"the issuer did not sign you in: {reason[:200]}"
            raise UnauthenticatedError(msg)
        metadata = await self._issuer_metadata()
        if answer.get("iss", metadata["issuer"]) != metadata["issuer"]:
            msg = "the answer is of another issuer"
            raise UnauthenticatedError(msg)
        token = await self._exchange(metadata["token_endpoint"], answer["code"], pending)
        return token, pending.back

    async def _exchange(self, endpoint: str, code: str, pending: _Pending) -> str:
        """The ID token for a code."""
        try:
            async with self._client() as client:
                found = await client.fetch_token(
                    endpoint,
                    grant_type="authorization_code",
                    code=code,
                    code_verifier=pending.verifier,
                )
            token = str(found["id_token"])
            # The API checks all else of it, signature first; the nonce only we know.
            claims = jwt.decode(token, options={"verify_signature": False})
        except httpx2.HTTPError as error:
            raise _away(error) from None
        except (AuthlibBaseError, jwt.PyJWTError, KeyError, ValueError) as error:
            _log.info("sign_in.refused", reason=repr(error))
            msg = "the issuer gave no token for this sign-in; begin anew"
            raise UnauthenticatedError(msg) from None
        if not compare_digest(str(claims.get("nonce", "")).encode(), pending.nonce.encode()):
            msg = "the token is of another sign-in; begin anew"
            raise UnauthenticatedError(msg)
        return token

    async def _issuer_metadata(self) -> Mapping[str, Any]:
        if self._now() < self._metadata_until_s:
            return self._metadata
        issuer = self._config.issuer.rstrip("/")
        try:
            async with asyncio.timeout(_TIMEOUT_S), httpx2.AsyncClient() as client:
                response = await client.get(f"{issuer}/.well-known/openid-configuration")
                response.raise_for_status()
                metadata = response.json()
                known = {name: str(metadata[name]) for name in _ENDPOINTS}
        except (httpx2.HTTPError, TimeoutError, KeyError, TypeError, ValueError) as error:
            raise _away(error) from None
        if known["issuer"].rstrip("/") != issuer:
            raise _away(ValueError(f"it calls itself {known['issuer']}"))
        self._metadata, self._metadata_until_s = known, self._now() + _METADATA_TTL_S
        return known

    def _client(self) -> AsyncOAuth2Client:
        config = self._config
        return AsyncOAuth2Client(
            config.client_id,
            config.client_secret,
            scope=config.scopes,
            redirect_uri=config.redirect_url,
            code_challenge_method="S256",
            token_endpoint_auth_method="client_secret_basic"
            if config.client_secret
            else "none",  # names of methods
            timeout=_TIMEOUT_S,
        )

    def _forget_old(self) -> None:
        now = self._now()
        while self._pending and (
            len(self._pending) >= _MAX_PENDING
            or next(iter(self._pending.values())).until_s < now
        ):
            self._pending.popitem(last=False)


def _away(error: Exception) -> PopStreamError:
    _log.warning("issuer.unavailable", reason=repr(error))
    return UnavailableError("the issuer does not answer as one; try again, or use an API key")


def _hashed(text: str) -> bytes:
    return sha256(text.encode()).digest()
