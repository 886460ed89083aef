"""What an operator may ask of the running process, and tell it: the verbs, whoever carries them in.

An order is a JSON object with `do` and what it needs; the answer is one with `result`, or with `error`, a sentence. The Unix socket
carries one per line; an admin API would carry the same ones.

    {"do": "rollout.status"}    {"do": "rollout.start", "model": "m"}    {"do": "chain", "model": "m", "session": "s"}
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs
import msgspec
from attrs import define

from trioproxy.gateway import Gateway
from trioproxy.policy.chain import Chain
from trioproxy.policy.rollout import NoSuchMove, Verb

Order = Mapping[str, str]


class Misunderstood(Exception):
    """The order cannot be followed; the message says what to write instead."""


@define(eq=False)
class Orders:
    """The verbs over one gateway. Cancelled, an order has been followed whole or not at all."""

    gateway: Gateway

    async def answer(self, line: bytes) -> bytes:
        """Follow one order. Never raises for what was asked; the answer has no line end."""
        try:
            told: dict[str, Any] = {"result": await self._follow(line)}
        except (Misunderstood, NoSuchMove) as exc:
            told = {"error": str(exc)}
        return msgspec.json.encode(told)

    async def _follow(self, line: bytes) -> object:
        try:
            order = msgspec.json.decode(line, type=dict[str, str])
        except (msgspec.DecodeError, RecursionError) as exc:
            raise Misunderstood(f"an order is a JSON object of strings: {exc}") from exc
        verb = self._verbs.get(order.get("do", ""))
        if verb is None:
            raise Misunderstood(f"there is no order {order.get('do', '')[:64]!r}; there are {', '.join(self._verbs)}")
        return await verb(order)

    @property
    def _verbs(self) -> dict[str, Callable[[Order], Awaitable[object]]]:
        moves = {f"rollout.{verb.value}": self._rollout for verb in Verb}
        return {"rollout.status": self._status, **moves, "chain": self._chain, "readings": self._readings}

    async def _status(self, order: Order) -> object:
        rollouts = self.gateway.rollouts()
        model = order.get("model")
        if model is None:
            return [attrs.asdict(each) for each in rollouts.values()]
        if model not in rollouts:
            raise self._no_rollout(model)
        return [attrs.asdict(rollouts[model])]

    async def _rollout(self, order: Order) -> object:
        model = order.get("model", "")
        if model not in self.gateway.rollouts():
            raise self._no_rollout(model)
        verb, force = Verb(order["do"].partition(".")[2]), order.get("force") == "yes"
        return attrs.asdict(await self.gateway.order_rollout(model, verb, force=force))

    def _no_rollout(self, model: str) -> Misunderstood:
        known = ", ".join(self.gateway.rollouts()) or "none"
        return Misunderstood(f"the model {model[:64]!r} has no rollout; there are {known}")

    async def _chain(self, order: Order) -> object:
        model = order.get("model", "")
        try:
            session = (order.get("tenant", "default"), order["session"]) if "session" in order else None
            chains = self.gateway.chains(model, session)
        except KeyError:
            raise Misunderstood(f"no model answers to {model[:64]!r}") from None
        return {arm: _plain(chain) for arm, chain in chains.items()}

    async def _readings(self, _order: Order) -> object:
        readings = self.gateway.readings()
        return {
            model: {channel: attrs.asdict(reading) for channel, reading in channels.items()}
            for model, channels in readings.items()
        }


def _plain(chain: Chain) -> dict[str, object]:
    steps = {name: [attrs.asdict(step) for step in getattr(chain, name)] for name in ("steps", "beyond")}
    return {**steps, "skipped": [list(pair) for pair in chain.skipped]}
