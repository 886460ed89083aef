"""THE line: one request's way through the house.

    authenticate → classify → route → admit → attempt* → relay → settle

`exchange` is a block around the whole answer. Whatever a request holds is held inside it, and leaving it by any way, an
exception or a cancellation at any point included, gives all of it back and settles exactly once. Inside is the request's
nursery; its children are the attempts, one after the other. Nothing of an answer exists before an attempt has committed.

Expected failures are answers, not exceptions: only bugs and cancellation leave this block by being raised.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio
from attrs import define

from trioproxy.answer import Answer
from trioproxy.call import Call, Endpoint, Request
from trioproxy.config.model import Model
from trioproxy.errors import Refusal, RefusalKind
from trioproxy.journal import Journal
from trioproxy.phases import answering, settle
from trioproxy.phases.admit import END_USER, Admitter
from trioproxy.phases.authenticate import ANONYMOUS, Keyring
from trioproxy.phases.classify import Classifier
from trioproxy.phases.deferral import Deferral
from trioproxy.phases.fallback import StandIns
from trioproxy.phases.keepalive import Keepalive
from trioproxy.phases.route import Route, Router
from trioproxy.phases.walk import Walk
from trioproxy.store.store import Store


@define(eq=False)
class Line:
    """The phases, put together by the composition root. `wall` is Unix seconds."""

    keyring: Keyring
    classifier: Classifier
    router: Router
    journal: Journal
    wall: Callable[[], float]
    admitter: Admitter | None = None  # None where nothing is limited
    store: Store | None = None  # None where nothing is kept
    deferral: Deferral | None = None  # None where nothing is put off


@asynccontextmanager
async def exchange(
    line: Line, request: Request, endpoint: Endpoint, *, owner: str | None = None
) -> AsyncGenerator[Answer]:
    """One request and its answer. `owner` is the id of the key behind a call that was put off, and is done now.

    The answer is good inside the block only. Cancelling the block is how a caller leaves: the upstream connection is closed
    at once, and no channel is blamed for it.
    """
    request_id = line.classifier.request_id(request.headers)
    caller = ANONYMOUS
    call: Call | None = None
    walk: Walk | None = None
    deferral, put_off = line.deferral if owner is None else None, None
    try:
        wall = line.wall()
        caller = line.keyring.caller(request.headers, wall) if owner is None else line.keyring.named(owner, wall)
        call = line.classifier.call(request, endpoint, caller, request_id)
        put_off = None if deferral is None else await deferral.known(call, request)
        if put_off is None:
            route, walk = await _walk(line, call, request)
            walk.policy = route.model if owner is None and route.model.on_exhausted != "error" else None
            put_off = await _enter(line, request, walk, route.model, deferral=deferral)
        # Nothing may come between this and the settlement: what the call needs is held now.
    except Refusal as refusal:
        answer = answering.refusal(refusal, endpoint.dialect, request_id)
        settle.refused(line.journal, request, answer, request_id=request_id, caller=caller)
        yield answer
        return
    except BaseException as exc:
        if call is None:
            settle.broken_off(line.journal, request, exc, request_id=request_id, caller=caller)
        else:
            settle.left_early(line.journal, call, walk, exc)
        raise
    if put_off is not None:
        settle.put_off(line.journal, call, put_off)
        yield put_off
        return
    assert walk is not None, "what is not put off is walked"
    with settle.Settlement(call, walk, line.journal) as settlement:
        if not call.facts.stream:
            async with trio.open_nursery() as nursery:
                await walk.go(nursery)
            # Its last attempt has ended with the nursery, so a unary answer is whole and holds nothing upstream.
            later = None if walk.error is None or deferral is None else await deferral.exhausted(call, walk, request)
            settlement.begin(answer := later or answering.answer(call, walk, None))
            yield answer
            return
        async with trio.open_nursery() as nursery:
            keepalive = await _decide(walk, call, nursery)
            late = keepalive is not None or walk.error is None  # behind a keep-alive a 200 has gone out
            later = None if late or deferral is None else await deferral.exhausted(call, walk, request)
            settlement.begin(answer := later or answering.answer(call, walk, keepalive), keepalive)
            yield answer
            if walk.committed is not None and walk.committed.relay is not None:
                await walk.committed.relay.linger()
            if keepalive is not None:  # its reader may have left while the chain was still being walked
                nursery.cancel_scope.cancel("the reader has left")


async def _walk(line: Line, call: Call, request: Request) -> tuple[Route, Walk]:
    """The walk of a call, for which nothing is held yet."""
    if line.store is not None and not line.store.admits:
        raise Refusal(RefusalKind.UNRECORDABLE, "the gateway cannot record calls at the moment: try again later")
    route, chain = await line.router.chain(call, trio.current_time())
    public_name = call.facts.model if route.model.rewrite_model else None
    walk = Walk(call, chain, line.router.channels, line.wall, line.router.exhausted, public_name)
    if route.model.fallback:
        user = request.headers.get(END_USER, b"")
        walk.stand_ins = StandIns.of(call, route.model, line.router, line.admitter, user=user)
    return route, walk


async def _enter(line: Line, request: Request, walk: Walk, model: Model, *, deferral: Deferral | None) -> Answer | None:
    """Have what a call needs held for it; or what it is told where it was put off instead. Raises `Refusal`."""
    if line.admitter is None:
        return None
    live = partial(line.router.now, walk.call.facts.model, walk.call)
    try:
        await walk.enter(line.admitter, model, request.headers.get(END_USER, b""), live)
    except Refusal as exc:
        refusal = exc.with_traceback(None)  # which has this frame in it
    else:
        return None
    put_off = None if deferral is None else await deferral.turned_away(walk.call, refusal, request)
    if put_off is None:
        raise refusal
    return put_off


async def _decide(walk: Walk, call: Call, nursery: trio.Nursery) -> Keepalive | None:
    """Walk the chain until it decides; or, where the class says so, until its patience for silence is over."""
    await walk.go(nursery)
    patience = call.policy.keepalive_after
    if not patience:
        await walk.decided.wait()
        return None
    with trio.move_on_after(patience):
        await walk.decided.wait()
    return None if walk.decided.is_set() else Keepalive(walk, call)
