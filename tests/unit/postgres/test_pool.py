"""What becomes of the driver's errors."""

import asyncpg
import pytest

from pop_stream.model.errors import UnavailableError, UnstorableError
from pop_stream.postgres.pool import translate_errors


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.CannotConnectNowError("starting up"),
        asyncpg.InterfaceError("connection is closed"),
        # Seen when Postgres was killed while an API answered: it was a 500, and not a 503.
        asyncpg.InternalClientError("cannot switch to state 11; another operation (2)"),
        ConnectionResetError(),
        TimeoutError(),
    ],
)
def test_a_database_that_goes_away_is_reported_of_as_such(error):
    with (
        pytest.raises(UnavailableError, match="the database does not answer"),
        translate_errors(),
    ):
        raise error


def test_a_value_that_no_row_holds_is_no_outage():
    error = asyncpg.DataError("out of range")
    with pytest.raises(UnstorableError), translate_errors():
        raise error
