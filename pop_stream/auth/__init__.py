"""Who sends a request: API keys, and bearer tokens of an issuer elsewhere.

`tokens.CredentialVerifier` takes the value of an `Authorization` header and answers with a
`Principal` (a name, a customer or none, roles), or raises: `UnauthenticatedError` if the
credentials identify nobody, `UnavailableError` if that cannot be found out now. The API asks
it for every request, ingest for records that carry a token.

Keys (`keys.py`) are looked up in Postgres and cached for seconds, so a revocation acts within
`FRESH_FOR`. While Postgres is away the copy on `pop.definitions` counts, and then what was
seen within `STALE_FOR`. Only hashes are stored; secrets are compared in constant time.

Tokens (`tokens.py`) are JSON Web Tokens with asymmetric signatures only. Their keys
(`jwks.py`) come from a URL or a file and are read again every ten minutes, earlier for an
unknown key id but never more often than every ten seconds, so that made-up ids cannot flood
the issuer. While the issuer is away a set serves for a day, and only one caller waits for it.

No secret is ever logged.
"""
