import json

import pytest

from pop_stream.puller.execution.operation_retrier import RESULT_BYTES, encode_result
from pop_stream.puller.handlers.errors import FinalError
from pop_stream.puller.reporting.messages import MAX_MESSAGE_LENGTH, excerpt, message


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (None, b""),
        ({"size": 12}, b'{"size":12}'),
        ([1, 2.5, "é", True, None], '[1,2.5,"é",true,null]'.encode()),
        ((1, 2), b"[1,2]"),
        ({1: "a"}, b'{"1":"a"}'),
        (0, b"0"),
        ("\\u0000 as text", b'"\\\\u0000 as text"'),
    ],
)
def test_result_is_compact_json(value, encoded):
    assert encode_result(value) == encoded


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({1, 2}, "type set is not JSON"),
        ({"when": object()}, "type object is not JSON"),
        ({("a", "b"): 1}, "not tuple"),
        (float("nan"), "a float, is not JSON: it holds NaN or Infinity"),
        ({"x": float("inf")}, "a dict, is not JSON: it holds NaN or Infinity"),
        ("\ud800", "surrogates not allowed"),
        ("a\0b", "NUL character"),
        ({"deep\\\0": 1}, "NUL character"),
    ],
)
def test_result_that_json_cannot_say_fails_finally_and_says_why(value, says):
    with pytest.raises(FinalError, match=says):
        encode_result(value)


def test_result_that_holds_itself_fails_finally():
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(FinalError, match="not JSON"):
        encode_result(endless)


def test_result_at_the_limit_is_taken_and_one_byte_more_is_not():
    largest = "x" * (RESULT_BYTES - 2)
    assert len(encode_result(largest)) == RESULT_BYTES
    with pytest.raises(FinalError, match=rf"{RESULT_BYTES + 1} bytes, at most {RESULT_BYTES}"):
        encode_result(largest + "x")


def test_message_is_cut_and_cleaned():
    assert message("a\0b\ud800c") == "a\N{REPLACEMENT CHARACTER}b?c"
    assert len(message("x" * 10_000)) == MAX_MESSAGE_LENGTH


@pytest.mark.parametrize("raw", [b"\x01" * 5000, b"\xff" * 5000, "é".encode() * 2500])
def test_excerpt_is_bounded_as_json_whatever_the_bytes(raw):
    text, is_cut = excerpt(raw, most_bytes=1000)
    assert is_cut
    assert 0 < len(json.dumps(text, ensure_ascii=False).encode()) <= 1000


def test_short_text_is_no_excerpt():
    assert excerpt(b"all of it", most_bytes=1000) == ("all of it", False)
