"""The tiers that a caller's key may name instead of limits of its own."""

from trioproxy.policy.limits import Limits


def _tier(requests_per_minute: int, tokens_per_minute: int, requests_per_day: int | None) -> Limits:
    return Limits(
        concurrency=100,
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        requests_per_day=requests_per_day,
    )


TIERS = {
    "free": _tier(60, 10_000, 1_000),
    "basic": _tier(500, 100_000, 50_000),
    "pro": _tier(2_000, 500_000, 500_000),
    "enterprise": _tier(10_000, 2_000_000, None),
}
