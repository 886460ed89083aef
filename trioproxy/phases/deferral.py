"""A call that nobody can answer now is put off, where its model's policy says so: stored, and answered 202.

Whoever is told 202 has a call that is on disk. Anything that stands in the way (no room, a store in trouble) is told as an error, so
that nothing is taken that may be lost. A caller that gives an idempotency key gets the same call again, however often it asks.
"""

import hashlib
import math
import re
import secrets
from collections.abc import Callable, Mapping
from functools import partial

import msgspec
import trio
from attrs import define

from trioproxy.answer import Answer
from trioproxy.call import Call, Request
from trioproxy.codec.problem import problem_of
from trioproxy.config.model import Model
from trioproxy.errors import Refusal, RefusalKind, TrioproxyError
from trioproxy.http.headers import FORWARDED
from trioproxy.phases import answering
from trioproxy.phases.admit import END_USER
from trioproxy.phases.classify import SESSION
from trioproxy.phases.problems import mended, problem
from trioproxy.phases.route import Router
from trioproxy.phases.walk import Walk
from trioproxy.policy.classes import QueuePolicy
from trioproxy.store import deferred
from trioproxy.store.database import DatabaseTrouble
from trioproxy.store.deferred import Bounds, Deferred, Put
from trioproxy.store.store import Store

IDEMPOTENCY = b"idempotency-key"
# What says how a call is to be treated. Who asks is stored by the id of its key, never by the key.
KEPT = (*FORWARDED, b"x-trioproxy-class", SESSION, END_USER)
# Turned away by the line of its class. A limit or a budget of the caller's own is no matter of capacity.
TURNED_AWAY = frozenset({RefusalKind.QUEUE_FULL, RefusalKind.QUEUE_TIMEOUT, RefusalKind.CLASS_PAUSED})
PATIENCE = 10.0  # seconds for the store; a lock is told after one
SHORTEST, LONGEST = 1, 60  # seconds between two looks at what has become of it

_GIVEN = re.compile(rb"[\x21-\x7e]([\x20-\x7e]{0,253}[\x21-\x7e])?")
_USUAL = QueuePolicy()


@define(eq=False)
class Deferral:
    """Puts calls off. `hooks` are the names of keys' own webhooks; `stirred` hears that there may be more to do."""

    store: Store
    bounds: Bounds
    router: Router
    hooks: Mapping[str, str]
    wall: Callable[[], float]
    stirred: Callable[[], None]

    async def known(self, call: Call, request: Request) -> Answer | None:
        """The answer to a repetition of a call that was put off; None where it is none. Raises `Refusal`."""
        if IDEMPOTENCY not in request.headers or self._policy(call) is None:
            return None
        given = _idempotency(request.headers)
        spool = self._spool
        try:
            found = await self.store.query(
                lambda database: deferred.repeated(database, spool, call.caller.tenant, given)
            )
        except DatabaseTrouble as trouble:
            raise _unstored("whether this call was put off before cannot be looked up at the moment") from trouble
        return None if found is None else self._accepted(self._same(found, call), call, None)

    async def exhausted(self, call: Call, walk: Walk, request: Request) -> Answer | None:
        """What is answered in place of an exhausted chain's error; None where that is to be told.

        Cancelled, the call may be stored all the same, and is then done as any.
        """
        policy = walk.policy
        if policy is None or policy.on_exhausted != "defer" or walk.error is None:
            return None
        told = problem(call, walk, walk.error)
        if not mended(told, walk.error):
            return None
        try:
            found = await self._stored(call, policy, request, told.message)
        except Refusal as refusal:
            walk.why = problem_of(refusal).code or ""
            answer = answering.refusal(refusal, call.endpoint.dialect, call.request_id)
        else:
            walk.instead, walk.why = "defer", told.code or ""
            answer = self._accepted(found, call, walk.error.retry_after, walk.error)
        answer.overhead = answering.overhead(call, walk)
        return answer

    async def turned_away(self, call: Call, refusal: Refusal, request: Request) -> Answer | None:
        """The same in place of the queue's no, where the class would have that. Raises `Refusal` where it cannot be stored."""
        queue = call.policy.queue
        if queue is None or queue.otherwise != "defer" or refusal.kind not in TURNED_AWAY:
            return None
        policy = self._policy(call)
        if policy is None:
            return None
        found = await self._stored(call, policy, request, refusal.message)
        return self._accepted(found, call, refusal.retry_after, refusal)

    @property
    def _spool(self) -> int:
        return self.store.writer.importer.number

    def _policy(self, call: Call) -> Model | None:
        """The model's, where it defers and the caller may ask for it."""
        name = call.facts.model
        if not self.router.knows(call.caller, name):
            return None
        found = self.router.catalogue.find(name)
        return found[0].model if found is not None and found[0].model.on_exhausted == "defer" else None

    async def _stored(self, call: Call, policy: Model, request: Request, why: str) -> Deferred:
        """Raises `Refusal`; durable when it returns."""
        put = self._put(call, policy, request)
        unstored = f"{why}; and the call could not be stored to be done later"
        outcome: Deferred | str | None = None
        try:
            with trio.move_on_after(PATIENCE):
                outcome = await self.store.run(partial(deferred.accept, spool=self._spool, put=put, bounds=self.bounds))
        except DatabaseTrouble as trouble:
            raise _unstored(unstored) from trouble
        finally:
            self.stirred()  # also where its caller has left: it may be stored
        if outcome is None:  # a disk that hangs may still take it: then it is done, and an idempotency key finds it
            raise _unstored(unstored)
        if isinstance(outcome, str):
            message = f"{why}; and no more calls can be stored to be done later: [deferred] {outcome} is reached"
            raise Refusal(RefusalKind.DEFERRAL_FULL, message)
        return self._same(outcome, call)

    def _put(self, call: Call, policy: Model, request: Request) -> Put:
        headers, now = request.headers, self.wall()
        return Put(
            id=f"dfr_{secrets.token_hex(12)}",
            tenant=call.caller.tenant,
            key_id=call.caller.key_id,
            idempotency=_idempotency(headers),
            digest=_digest(call),
            model=call.facts.model,
            endpoint=call.endpoint.path,
            traffic_class=call.traffic_class,
            priority=(call.policy.queue or _USUAL).priority,
            request_id=call.request_id,
            headers={name.decode("latin-1"): headers[name].decode("latin-1") for name in KEPT if name in headers},
            body=call.endpoint.dialect.unstreamed(call.body, call.facts),
            accepted=now,
            expires=now + policy.defer_ttl,
            hook=self.hooks.get(call.caller.key_id) or policy.webhook or "",
        )

    def _same(self, found: Deferred, call: Call) -> Deferred:
        if found.digest != _digest(call):
            message = "this idempotency-key was used for another request: use a new key for each"
            raise Refusal(RefusalKind.BAD_REQUEST, message, param=IDEMPOTENCY.decode())
        return found.at(self.wall())

    def _accepted(self, found: Deferred, call: Call, wait: float | None, error: TrioproxyError | None = None) -> Answer:
        told = found.told()
        lines = b"content-type: application/json\r\nx-request-id: %b\r\n%b" % (call.request_id.encode(), later(wait))
        lines += b"location: %b\r\nx-trioproxy-degraded: defer\r\n" % told["poll_url"].encode()
        return Answer(202, lines, msgspec.json.encode(told), error=error)


def later(wait: float | None) -> bytes:
    """When to look again, as a header line."""
    seconds = 5 if wait is None else min(LONGEST, max(SHORTEST, math.ceil(wait)))
    return b"retry-after: %d\r\n" % seconds


def _digest(call: Call) -> str:
    return hashlib.sha256(call.body).hexdigest()


def _idempotency(headers: Mapping[bytes, bytes]) -> str:
    given = headers.get(IDEMPOTENCY)
    if given is None:
        return ""
    if not _GIVEN.fullmatch(given):
        message = "idempotency-key takes 1 to 255 printable characters of ASCII"
        raise Refusal(RefusalKind.BAD_REQUEST, message, param=IDEMPOTENCY.decode())
    return given.decode()


def _unstored(message: str) -> Refusal:
    return Refusal(RefusalKind.UNRECORDABLE, message)
