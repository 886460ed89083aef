"""The gateway as an embedder holds it: requests in, answers out, no socket on the downstream side.

    async with gateway.dispatch(Request.post("/v1/chat/completions", {...})) as answer:
        while data := await answer.receive():
            ...

The data door uses the very same call.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import msgspec
import trio
from attrs import define, field

from trioproxy.answer import Answer
from trioproxy.call import Endpoint, Request
from trioproxy.channel import ChannelStatistics
from trioproxy.codec.frame import Dialect
from trioproxy.deferral import ALLOWED, Desk
from trioproxy.errors import Refusal, RefusalKind
from trioproxy.journal import Journal, Reading
from trioproxy.lag import LagStatistics
from trioproxy.lifecycle import Line, exchange
from trioproxy.phases import answering, settle
from trioproxy.phases.authenticate import ANONYMOUS
from trioproxy.policy.chain import Chain
from trioproxy.policy.gauge import Gauge
from trioproxy.policy.hierarchy import QuotaStatistics
from trioproxy.policy.pace import PaceStatistics
from trioproxy.policy.rejections import Rejections
from trioproxy.policy.rollout import Verb
from trioproxy.store.store import Store
from trioproxy.supervisor import Supervisor
from trioproxy.traffic import RolloutStatistics
from trioproxy.waiting_room import ClassStatistics

_MODELS = "/v1/models"
_LOCAL = ("/healthz", "/readyz", _MODELS)
_JSON = b"content-type: application/json\r\n"


@define(eq=False)
class Gateway:
    """One configuration at work. Made by `open_gateway`, good inside its block."""

    line: Line
    supervisor: Supervisor
    endpoints: Mapping[str, Endpoint]
    dialect: Dialect  # of the errors of paths that belong to no dialect
    rejections: Rejections = field(factory=Rejections)  # the calls that ended with 429, by whose word
    store: Store | None = None  # what is remembered beyond the process; None where nothing is
    desk: Desk | None = None  # where calls are asked for that were put off; None where none ever is

    @property
    def journal(self) -> Journal:
        """Where to subscribe to what happens."""
        return self.line.journal

    def dispatch(self, request: Request) -> AbstractAsyncContextManager[Answer]:
        """Answer one request.

        Whatever can be expected to go wrong is an `Answer` with a status, a body in the endpoint's dialect and `error`
        set. Cancelling the block, or leaving it early, gives up the call: its upstream connection is closed at once.
        An exception raised inside the block comes out of a stream as a nursery passes it on, in an `ExceptionGroup`, else as it is.
        """
        endpoint = self.endpoints.get(request.path)
        if endpoint is not None and request.method == "POST":
            return exchange(self.line, request, endpoint)
        return self._local(request, endpoint)

    def perform(self, request: Request, owner: str) -> AbstractAsyncContextManager[Answer]:
        """As `dispatch`, for a call that was put off by the key with the id `owner`: it ends as it ends, and is not put off again."""
        return exchange(self.line, request, self.endpoints[request.path], owner=owner)

    def recognises(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether these headers carry a key that is good now."""
        try:
            self.line.keyring.caller(headers, self.line.wall())
        except Refusal:
            return False
        return True

    def ready(self) -> bool:
        """Whether at least one channel may be asked now."""
        now = trio.current_time()
        return any(channel.objection("", now) is None for channel in self.supervisor.channels.state.values())

    def statistics(self) -> dict[str, ChannelStatistics]:
        """A reading of every channel."""
        return self.supervisor.statistics(trio.current_time())

    def lag(self) -> LagStatistics:
        """How late the loop has run, as a histogram; empty where nobody runs `supervisor.lag.watch`, as `serve` does."""
        return self.supervisor.lag.statistics()

    def paces(self) -> dict[str, PaceStatistics]:
        """How much each channel is sent: what was learned of its provider, how fast it may grow, whom that turned away."""
        now = trio.current_time()
        return {name: state.pace.statistics(now) for name, state in self.supervisor.channels.state.items()}

    def quota(self) -> QuotaStatistics:
        """A reading of the quota: what open calls hold, and what was refused."""
        return self.supervisor.quota.state.quota.statistics()

    def drift(self) -> dict[str, tuple[float, float]]:
        """Per channel, actual over estimated tokens of input as learned (1: the same), and its deviation."""
        return self.supervisor.quota.state.learned.drift()

    def limits(self) -> list[Gauge]:
        """Every limiter that a call has met, and what is left of it."""
        return self.supervisor.quota.state.quota.readings(trio.current_time(), self.line.wall())

    def chains(self, model: str, session: tuple[str, str] | None = None) -> dict[str, Chain]:
        """What a call for a model would be given now, by the arm of its rollout ("" without one); see `Router.preview`."""
        return self.line.router.preview(model, session, trio.current_time())

    def readings(self) -> dict[str, dict[str, Reading]]:
        """Cached share, time to first content and unit cost of every channel over the last five minutes, by model."""
        return self.supervisor.traffic.state.readings(trio.current_time())

    def rollouts(self) -> dict[str, RolloutStatistics]:
        """A reading of every rollout, by model."""
        return self.supervisor.traffic.state.statistics(trio.current_time())

    async def order_rollout(self, model: str, verb: Verb, *, force: bool = False) -> RolloutStatistics:
        """Start, step, pause or roll back. Raises `KeyError` for a model without a rollout, and `NoSuchMove`.

        What the rollout requires before a step stands against it, but for `force`.
        """
        await self.supervisor.traffic.state.order(model, verb, force=force)
        return self.rollouts()[model]

    def queues(self) -> dict[str, ClassStatistics]:
        """Every class that has a queue: who waits, what became of the others, and what its tenants have. Empty without any."""
        room = self.supervisor.quota.state.room
        return {} if room is None else room.statistics(trio.current_time())

    @asynccontextmanager
    async def _local(self, request: Request, endpoint: Endpoint | None) -> AsyncGenerator[Answer]:
        """What the gateway answers by itself."""
        request_id = self.line.classifier.request_id(request.headers)
        desk = self.desk if self.desk is not None and self.desk.serves(request.path) else None
        try:
            answer = self._answer(request, endpoint) if desk is None else await desk.answer(request)
        except Refusal as refusal:
            allowed = _allowed(request.path, endpoint) if desk is None else ALLOWED
            answer = answering.refusal(refusal, self.dialect, request_id, allow=allowed)
            settle.refused(self.journal, request, answer, request_id=request_id, caller=ANONYMOUS)
        yield answer

    def _answer(self, request: Request, endpoint: Endpoint | None) -> Answer:
        path = request.path
        allowed = _allowed(path, endpoint)
        if not allowed:
            raise Refusal(RefusalKind.NOT_FOUND, f"there is nothing at {path[:200]!r}")
        if request.method not in allowed.split(", "):
            raise Refusal(RefusalKind.METHOD_NOT_ALLOWED, f"{path} takes {allowed}, not {request.method[:32]}")
        if path == "/healthz":
            return _json(200, {"status": "alive"})
        if path == "/readyz":
            ready = self.ready()
            return _json(200 if ready else 503, {"status": "ready" if ready else "no channel is usable"})
        return self._models(request)

    def _models(self, request: Request) -> Answer:
        caller = self.line.keyring.caller(request.headers, self.line.wall())
        names = self.line.router.visible(caller)
        wanted = request.path.removeprefix(_MODELS).removeprefix("/")
        if not wanted:
            return _json(200, {"object": "list", "data": [_model(name) for name in names]})
        if not self.line.router.knows(caller, wanted):
            raise Refusal(RefusalKind.MODEL_NOT_FOUND, f"the model {wanted[:200]!r} does not exist", param="model")
        return _json(200, _model(wanted))


def _allowed(path: str, endpoint: Endpoint | None) -> str:
    """The methods that a path takes; "" where there is nothing."""
    if endpoint is not None:
        return "POST"
    return "GET, HEAD" if path in _LOCAL or path.startswith(_MODELS + "/") else ""


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "trioproxy"}


def _json(status: int, payload: object) -> Answer:
    return Answer(status, _JSON, msgspec.json.encode(payload))
