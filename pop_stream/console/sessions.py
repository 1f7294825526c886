"""Who is signed in to the console."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from secrets import compare_digest, token_urlsafe
from typing import Final

from pop_stream.api_models.keys import CallerView

MAX_SESSIONS: Final = 10_000
"""Most sessions of one process; the one that expires first makes room for another."""


@dataclass(frozen=True, slots=True)
class Session:
    """One viewer, signed in.

    Attributes:
        caller: As the API knows it.
        token: Its key, shown to the API with every call; None where the API asks nobody.
        expires_at: In seconds on the clock of the sessions.
        csrf: What a form must carry to act in its name.
    """

    caller: CallerView
    token: str | None
    expires_at: float
    csrf: str = field(default_factory=lambda: token_urlsafe(24))

    def accepts(self, csrf: str) -> bool:
        """Whether a form was made for this session."""
        return compare_digest(self.csrf.encode(), csrf.encode())


class Sessions:
    """All sessions of this process; ids are kept as hashes only.

    Args:
        lifetime: Of a session, from signing in.
        now: A clock in seconds.
    """

    def __init__(self, lifetime: timedelta, now: Callable[[], float]) -> None:
        self._lifetime_s = lifetime.total_seconds()
        self._now = now
        self._sessions: dict[bytes, Session] = {}

    def begin(self, caller: CallerView, token: str | None) -> tuple[str, Session]:
        """Sign a viewer in; returns the id for its cookie, which is known nowhere else."""
        self._forget_expired()
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[min(self._sessions, key=self._at)]
        session_id = token_urlsafe(32)
        session = Session(caller, token, self._now() + self._lifetime_s)
        self._sessions[_hashed(session_id)] = session
        return session_id, session

    def find(self, session_id: str) -> Session | None:
        """The session with this id, unless it has ended."""
        session = self._sessions.get(_hashed(session_id))
        return session if session is not None and session.expires_at > self._now() else None

    def end(self, session_id: str) -> None:
        """Sign out; an id that is not known is ignored."""
        self._sessions.pop(_hashed(session_id), None)

    def _at(self, hashed: bytes) -> float:
        return self._sessions[hashed].expires_at

    def _forget_expired(self) -> None:
        now = self._now()
        for hashed in [one for one, known in self._sessions.items() if known.expires_at <= now]:
            del self._sessions[hashed]


def _hashed(session_id: str) -> bytes:
    return sha256(session_id.encode()).digest()
