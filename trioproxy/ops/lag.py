"""The loop's lag in the log: once a minute quietly, or as a warning where somebody was held up for longer than a person notices."""

import trio

from trioproxy.lag import LoopLag
from trioproxy.ops.log import Log

REPORT = 60.0
NOTICED = 0.1  # seconds; what people call instant ends about there


async def report(lag: LoopLag, log: Log) -> None:
    """Tell the log once a minute, until cancelled."""
    while True:
        await trio.sleep(REPORT)
        log.account()
        taken = lag.take()
        loud = log.warn if taken.worst >= NOTICED else log.whisper
        p50, p99 = taken.quantile(0.5), taken.quantile(0.99)
        loud("lag", p50_ms=round(p50 * 1000, 1), p99_ms=round(p99 * 1000, 1), worst_ms=round(taken.worst * 1000, 1))
