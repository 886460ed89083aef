"""Content codings (RFC 9110 8.4.1) that we take off: gzip and deflate, never more than a stated size out.

A small body can unpack to gigabytes, so the bound is on what comes out, and it is checked before more is made.
"""

import zlib

from attrs import define, field

_GZIP = {b"gzip", b"x-gzip"}


class EncodingError(Exception):
    """A coding that we do not take, bytes that are not in it, or too much behind it (`too_large`)."""

    def __init__(self, message: str, *, too_large: bool = False) -> None:
        super().__init__(message)
        self.too_large = too_large


@define(eq=False)
class Decoder:
    """Takes one coding off a stream of bytes. `limit` bounds the whole output."""

    coding: bytes
    limit: int
    _made: int = field(init=False, default=0)
    _zlib: "zlib._Decompress | None" = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        coding = self.coding.strip().lower()
        if coding in _GZIP:
            self._zlib = zlib.decompressobj(wbits=31)
        elif coding == b"deflate":
            self._zlib = zlib.decompressobj(wbits=15)
        elif coding not in (b"", b"identity"):
            name = self.coding[:32].decode("latin-1")
            raise EncodingError(f"content-encoding {name!r} is not supported; send gzip, deflate or none")

    def feed(self, data: bytes) -> bytes:
        """What `data` unpacks to. Raises `EncodingError`."""
        if self._zlib is None:
            return data
        try:
            out = self._zlib.decompress(data, self.limit - self._made + 1)
        except zlib.error as exc:
            raise EncodingError(f"the body is not valid {self.coding.decode('latin-1')}") from exc
        self._made += len(out)
        if self._made > self.limit:
            raise EncodingError(f"the body unpacks to more than the limit of {self.limit} bytes", too_large=True)
        return out

    @property
    def complete(self) -> bool:
        return self._zlib is None or self._zlib.eof

    @property
    def surplus(self) -> bool:
        """Whether bytes came behind the end of the coding, a second gzip member included; they are not unpacked."""
        return self._zlib is not None and bool(self._zlib.unused_data)


def decoded(coding: bytes, data: bytes, *, limit: int) -> bytes:
    """A whole body without its coding. Raises `EncodingError`, also for a cut one."""
    decoder = Decoder(coding, limit)
    out = decoder.feed(data)
    if not decoder.complete:
        raise EncodingError(f"the body ends before its {coding.decode('latin-1')} coding does")
    if decoder.surplus:
        raise EncodingError(f"the body has bytes behind the end of its {coding.decode('latin-1')} coding")
    return out
