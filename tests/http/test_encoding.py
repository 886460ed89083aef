"""Content codings: taken off in any split, bounded before more is made, and refused by name where they are not ours."""

import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.http.encoding import Decoder, EncodingError, decoded

TEXT = b'{"model": "m", "messages": []}' * 20


def coded(coding: bytes, data: bytes) -> bytes:
    if coding.strip().lower() in (b"gzip", b"x-gzip"):
        return gzip.compress(data)
    return zlib.compress(data) if coding == b"deflate" else data


@pytest.mark.parametrize("coding", [b"gzip", b"x-gzip", b"GZIP", b" gzip ", b"deflate", b"identity", b""])
def test_a_body_comes_out_as_it_was(coding: bytes) -> None:
    assert decoded(coding, coded(coding, TEXT), limit=len(TEXT)) == TEXT


@given(st.binary(max_size=400), st.sampled_from([b"gzip", b"deflate", b"identity"]), st.data())
def test_the_split_of_the_bytes_does_not_matter(body: bytes, coding: bytes, data: st.DataObject) -> None:
    raw = coded(coding, body)
    decoder = Decoder(coding, 1000)
    out = b""
    while raw:
        size = data.draw(st.integers(1, len(raw)))
        out += decoder.feed(raw[:size])
        raw = raw[size:]
    assert out == body
    assert decoder.complete


@pytest.mark.parametrize("coding", [b"br", b"zstd", b"compress", b"gzip, gzip", b"gzip;q=1", b"\xff\xfe"])
def test_another_coding_is_refused_with_its_name_and_the_remedy(coding: bytes) -> None:
    with pytest.raises(EncodingError, match="is not supported; send gzip, deflate or none") as caught:
        decoded(coding, TEXT, limit=1000)
    assert repr(coding.decode("latin-1")) in str(caught.value)
    assert not caught.value.too_large


def test_an_endless_name_of_a_coding_is_not_repeated_in_full() -> None:
    with pytest.raises(EncodingError) as caught:
        Decoder(b"x" * 10_000, 1)
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
@pytest.mark.parametrize("junk", [b"{}", b"\x1f\x8b\x08broken", b"\x00" * 40])
def test_bytes_that_are_not_in_the_coding_are_refused(coding: bytes, junk: bytes) -> None:
    with pytest.raises(EncodingError, match=f"not valid {coding.decode()}"):
        decoded(coding, junk, limit=1000)


@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
@pytest.mark.parametrize("cut", [1, 9])
def test_a_body_that_is_cut_inside_its_coding_is_refused(coding: bytes, cut: int) -> None:
    with pytest.raises(EncodingError, match="ends before its"):
        decoded(coding, coded(coding, TEXT)[:-cut], limit=1000)


def test_a_wrong_checksum_is_refused() -> None:
    raw = bytearray(gzip.compress(TEXT))
    raw[-8] ^= 1
    with pytest.raises(EncodingError, match="not valid gzip"):
        decoded(b"gzip", bytes(raw), limit=1000)


def test_an_empty_body_is_not_in_a_coding() -> None:
    with pytest.raises(EncodingError, match="ends before its gzip coding"):
        decoded(b"gzip", b"", limit=1000)


@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
def test_the_limit_on_what_comes_out_is_exact(coding: bytes) -> None:
    raw = coded(coding, bytes(1000))
    assert decoded(coding, raw, limit=1000) == bytes(1000)
    with pytest.raises(EncodingError, match="more than the limit of 999 bytes") as caught:
        decoded(coding, raw, limit=999)
    assert caught.value.too_large


def test_a_bomb_is_noticed_before_it_is_made() -> None:
    """Not more than the limit and one byte is ever unpacked, however small the pieces that it comes in."""
    bomb = gzip.compress(bytes(50_000_000))
    decoder = Decoder(b"gzip", 10_000)
    made = 0

    def feed_all() -> None:
        nonlocal made
        for at in range(0, len(bomb), 100):
            made += len(decoder.feed(bomb[at : at + 100]))

    with pytest.raises(EncodingError) as caught:
        feed_all()
    assert caught.value.too_large
    assert made <= 10_000


def test_a_bomb_in_one_piece_takes_no_memory() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(EncodingError):
            decoded(b"gzip", bomb, limit=10_000)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
@pytest.mark.parametrize("behind", [b"x", gzip.compress(b'"more"')])
def test_bytes_behind_the_end_of_the_coding_are_not_silently_lost(coding: bytes, behind: bytes) -> None:
    with pytest.raises(EncodingError, match="bytes behind the end of its"):
        decoded(coding, coded(coding, TEXT) + behind, limit=1000)
