"""The desk where callers ask what has become of calls that were put off, and take back those that have not begun.

What belongs to another tenant looks like what does not exist.
"""

from collections.abc import Callable
from functools import partial

import msgspec
from attrs import define

from trioproxy.answer import Answer
from trioproxy.call import Request
from trioproxy.errors import Refusal, RefusalKind
from trioproxy.phases.authenticate import Keyring
from trioproxy.phases.deferral import later
from trioproxy.store import deferred
from trioproxy.store.database import DatabaseTrouble
from trioproxy.store.deferred import CANCELLED, DONE, OVER, Deferred
from trioproxy.store.store import Store

ALLOWED = "GET, HEAD, DELETE"
_JSON = b"content-type: application/json\r\n"


@define(eq=False)
class Desk:
    """Over the store. `wall` is Unix seconds."""

    store: Store
    keyring: Keyring
    wall: Callable[[], float]

    def serves(self, path: str) -> bool:
        return path.startswith(f"{deferred.PATH}/")

    async def answer(self, request: Request) -> Answer:
        """Raises `Refusal`. Cancelled, what was to be taken back may be taken back."""
        now = self.wall()
        caller = self.keyring.caller(request.headers, now)
        if request.method not in ALLOWED.split(", "):
            raise Refusal(
                RefusalKind.METHOD_NOT_ALLOWED, f"{request.path[:200]} takes {ALLOWED}, not {request.method[:32]}"
            )
        id_ = request.path.removeprefix(f"{deferred.PATH}/")
        removed = request.method == "DELETE"
        try:
            if removed:
                cancel = partial(deferred.cancel, id_=id_, tenant=caller.tenant, now=now)
                found = await self.store.run(cancel)
            else:
                found = await self.store.query(partial(deferred.find, id_=id_, tenant=caller.tenant))
        except DatabaseTrouble as trouble:
            raise Refusal(RefusalKind.UNRECORDABLE, "the store cannot be asked at the moment") from trouble
        if found is None:
            raise Refusal(
                RefusalKind.NOT_FOUND, f"there is no deferred call {id_[:64]!r}; results are not kept for ever"
            )
        return _removed(found.at(now)) if removed else _shown(found.at(now))


def _shown(found: Deferred) -> Answer:
    if found.status not in OVER:
        return Answer(202, _JSON + later(None), msgspec.json.encode(found.told()))
    return Answer(200 if found.status == DONE else 410, _JSON, msgspec.json.encode(found.told()))


def _removed(found: Deferred) -> Answer:
    if found.status == CANCELLED:
        return Answer(200, _JSON, msgspec.json.encode(found.told()))
    raise Refusal(RefusalKind.DEFERRED_BEGUN, f"it cannot be cancelled: it is {found.status}")
