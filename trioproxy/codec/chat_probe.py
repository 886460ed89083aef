"""The smallest real completion, and whether what came back for it shows that a model is at work.

One token is asked for, so the usual answer has `finish_reason: "length"`. Content is any text, thought, refusal or tool call.
A model that thinks first may have spent its token on that and show nothing: an answer cut by our own limit is content, too,
where its usage says that a token was made. Some providers call the same thing a mistake of ours (400, "could not finish the
message because max_tokens or model output limit was reached"): only a model that was at work can say so.
"""

import re
from collections.abc import Sequence

from trioproxy.codec import jsonread
from trioproxy.codec.frame import Shape
from trioproxy.codec.openai_chat import CHAT
from trioproxy.codec.usage import usage_of
from trioproxy.errors import Blame, Fault, FaultKind
from trioproxy.journal import Usage

SHOWN = ("content", "reasoning_content", "reasoning", "refusal", "tool_calls", "function_call", "audio")
_CUT = re.compile(rb"max_(completion_)?tokens or model output limit was reached", re.IGNORECASE)
# What a provider counts for a question of one word, where it does not say.
_SOME = Usage(input=8, output=1, estimated=True)


def question(model: str, shape: Shape, limit: str, tokens: int) -> bytes:
    """The request's body as the channel takes it. Raises `Refusal` where its shape cannot say that."""
    body = jsonread.write({"model": model, "messages": [{"role": "user", "content": "hi"}], limit: tokens})
    return CHAT.request(body, CHAT.facts(body), shape, model)


def verdict(
    status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes, wall: float
) -> tuple[Fault | None, Usage]:
    """Why the answer proves nothing, or None; and what it used. `wall` is Unix seconds."""
    if not 200 <= status < 300:
        cut = status == 400 and _CUT.search(body)
        return (None, _SOME) if cut else (CHAT.fault_of(status, headers, body, wall), Usage())
    fault, usage = CHAT.read_answer(body, status, wall)
    if fault is None and not _speaks(jsonread.read(body)[0]):
        fault = Fault(
            FaultKind.EMPTY, Blame.PROVIDER, "the answer has no content", status=status, retry=True, counts=True
        )
    return fault, usage or (_SOME if fault is None else Usage())


def _speaks(answer: object) -> bool:
    choices = answer.get("choices") if isinstance(answer, dict) else None
    spent = usage_of(answer)
    worked = spent is not None and spent.output > 0
    return isinstance(choices, list) and any(_said(choice, worked=worked) for choice in choices)


def _said(choice: object, *, worked: bool) -> bool:
    if not isinstance(choice, dict):
        return False
    message = choice.get("message")
    shown = isinstance(message, dict) and any(message.get(name) for name in SHOWN)
    return shown or bool(choice.get("text")) or (worked and choice.get("finish_reason") == "length")
