"""Signatures of what is posted to others, as the Standard Webhooks specification has them.

A message is signed as `id.timestamp.body` with HMAC-SHA256, so that neither of the three can be changed and an old message can be
told from a new one. A secret that begins with `whsec_` is base64 behind it; any other is taken as its own bytes.
"""

import base64
import hashlib
import hmac

PREFIX = "whsec_"


def signing_key(secret: str) -> bytes:
    """The key in a secret. Raises ValueError where it says to be base64 and is not."""
    if not secret.startswith(PREFIX):
        return secret.encode()
    return base64.b64decode(secret.removeprefix(PREFIX), validate=True)


def signature(key: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature`. `timestamp` is Unix seconds."""
    signed = b"%b.%d.%b" % (message_id.encode(), timestamp, body)
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
