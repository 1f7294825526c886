"""By a signature a part knows what another part of ours has written, as it was written."""

from hypothesis import assume, given
from hypothesis import strategies as st

from pop_stream.policy.ingress.signature import RecordSigner

OLD, NEW = b"o" * 32, b"n" * 32
SIGNER = RecordSigner([NEW])
TOPIC, KEY, VALUE = "pop.agenda-events", b"a1", b'{"type": "agenda.accepted"}'

topics = st.text("ab.", max_size=4)
texts = st.binary(max_size=6)
records = st.tuples(topics, st.none() | texts, texts)


def has_signed(signer, headers, record=(TOPIC, KEY, VALUE)):
    topic, key, value = record
    return signer.has_signed(topic, key=key, value=value, headers=headers)


@given(records, records)
def test_a_signature_is_of_one_record_in_one_topic(one, other):
    topic, key, value = one
    headers = SIGNER.headers(topic, key=key, value=value)
    assert has_signed(SIGNER, headers, one)
    # A record without a key and one with an empty key are the same to readers.
    assume((one[0], one[1] or b"", one[2]) != (other[0], other[1] or b"", other[2]))
    assert not has_signed(SIGNER, headers, other)


def test_one_secret_follows_another_while_both_are_in_use():
    before, first, then = (
        RecordSigner([OLD]),
        RecordSigner([OLD, NEW]),
        RecordSigner([NEW, OLD]),
    )
    signed_old, signed_new = (one.headers(TOPIC, key=KEY, value=VALUE) for one in (first, then))
    assert has_signed(before, signed_old)  # the new one is believed everywhere before it signs
    assert has_signed(first, signed_new)
    assert has_signed(then, signed_old)
    assert not has_signed(before, signed_new)
    assert not has_signed(SIGNER, signed_old)  # and the old one no more, once it is left out


def test_without_a_secret_nothing_is_signed_and_nothing_has_a_signature():
    nobody = RecordSigner()
    assert nobody.headers(TOPIC, key=KEY, value=VALUE) == ()
    assert not has_signed(nobody, SIGNER.headers(TOPIC, key=KEY, value=VALUE))
    assert not nobody.has_secret


def test_noise_is_no_signature():
    for shown in (None, b"", b"v1=", b"v1=00", b"\xff" * 67, b"v2=" + b"0" * 64):
        assert not has_signed(SIGNER, [("pop-signature", shown)])
    assert not has_signed(SIGNER, [])
