"""Signatures: what a receiver computes for itself is what we send."""

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.codec.signature import signature, signing_key


def hmac_sha256(key: bytes, message: bytes) -> bytes:
    """RFC 2104 from its text, so that nothing is shared with the code under test."""
    block = (hashlib.sha256(key).digest() if len(key) > 64 else key).ljust(64, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block) + message).digest()
    return hashlib.sha256(bytes(byte ^ 0x5C for byte in block) + inner).digest()


@given(st.binary(min_size=1, max_size=100), st.from_regex(r"msg_[0-9a-f]{24}", fullmatch=True), st.binary(max_size=200))
def test_id_time_and_body_are_signed(key: bytes, message_id: str, body: bytes) -> None:
    signed = message_id.encode() + b".1614265330." + body
    wanted = "v1," + base64.b64encode(hmac_sha256(key, signed)).decode()
    assert signature(key, message_id, 1_614_265_330, body) == wanted


def test_a_secret_of_the_standard_is_base64_and_any_other_is_itself() -> None:
    assert signing_key("whsec_" + base64.b64encode(b"\x00key\xff").decode()) == b"\x00key\xff"
    assert signing_key("a-plain-secret") == b"a-plain-secret"


@pytest.mark.parametrize("secret", ["whsec_not base64", "whsec_abc", "whsec_ä"])
def test_what_says_to_be_base64_and_is_not_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        signing_key(secret)
