"""Who goes first where a share of the callers goes somewhere: by a hash, so that everybody keeps his place.

A key has one place per subject, the same in every process and after every restart (`hash()` is salted per process). As the
share grows keys only join: whoever is in at 10 % is in at 50 %. Another subject shuffles anew.
"""

from hashlib import blake2b

PLACES = 10_000


def place(subject: str, key: str) -> int:
    """The key's place in [0, 10000). Never fails: what has no UTF-8 form has one here."""
    digest = blake2b(f"{subject}\0{key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % PLACES


def within(place: int, share: float) -> bool:
    """Whether a place is among the first `share` (0 to 1) of all."""
    return place < share * PLACES
