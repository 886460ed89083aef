"""The first bytes of image files, as long as the size needs them."""

import base64
import struct

from tests.policy.samples import noise


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", width, height) + b"\x08\x06\x00\x00\x00"


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\xf7\x00\x00"


def jpeg(width: int, height: int, *, before: int = 0, frame: int = 0xC0) -> bytes:
    """`before` bytes of profile stand before the size, in segments of at most 60,000."""
    segments = b""
    while before > 0:
        segments += b"\xff\xe2" + struct.pack(">H", min(before, 60_000) + 2) + bytes(min(before, 60_000))
        before -= 60_000
    table = b"\xff\xc4\x00\x05abc"  # a Huffman table is no frame, though its number is among theirs
    return (
        b"\xff\xd8"
        + segments
        + table
        + bytes([0xFF, 0xFF, frame])
        + struct.pack(">HBHH", 17, 8, height, width)
        + b"\x03"
    )


def webp_lossy(width: int, height: int) -> bytes:
    return b"RIFF\x00\x00\x00\x00WEBPVP8 \x00\x00\x00\x00\x30\x01\x00\x9d\x01\x2a" + struct.pack("<HH", width, height)


def webp_lossless(width: int, height: int) -> bytes:
    bits = (width - 1) | (height - 1) << 14
    return b"RIFF\x00\x00\x00\x00WEBPVP8L\x00\x00\x00\x00\x2f" + struct.pack("<I", bits) + bytes(5)


def webp_extended(width: int, height: int) -> bytes:
    size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x10\x00\x00\x00" + size


def url(head: bytes, kind: str = "png", *, size: int = 3000) -> str:
    """A data URL of a file of at least `size` bytes that begins with `head`."""
    return f"data:image/{kind};base64,{base64.b64encode(head + noise(size)).decode()}"
