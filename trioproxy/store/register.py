"""Who may ask and what was paid in, as the configuration says it: what has changed since the last start becomes records.

The configuration is what counts; the store keeps its history, so that a ledger can be read when the file has long been changed. A
tenant that the configuration gives no balance, and what a program posted for it, is left alone.
"""

from collections.abc import Iterator, Mapping

from trioproxy.config.model import Config
from trioproxy.store.database import Database
from trioproxy.store.records import KeyChange, TopUp

MICRO = 1_000_000
NOTE = "configuration"
REMOVED = "removed"


def changes(config: Config, database: Database, spool: int, now: float) -> list[KeyChange | TopUp]:
    """What is to be recorded at a start at `now`, Unix seconds. Reads only. Raises `DatabaseTrouble`."""
    told = database.execute("SELECT key_id, hash, tenant, state FROM keys WHERE spool = ? ORDER BY position", (spool,))
    last = {key_id: ((hash_, tenant), state) for key_id, hash_, tenant, state in told}
    known = {key_id: was for key_id, (was, state) in last.items() if state != REMOVED}
    paid = database.execute("SELECT tenant, sum(micro_usd) FROM balances WHERE spool = ? GROUP BY tenant", (spool,))
    return [
        *_keys(config, known, now),
        *_balances(config, {tenant: int(sum_) for tenant, sum_ in paid}, now),
    ]


def _keys(config: Config, known: Mapping[str, tuple[str, str]], now: float) -> Iterator[KeyChange]:
    for key in config.keys:
        was = known.get(key.id)
        if was != (key.hash, key.tenant):
            yield KeyChange(now, key.id, key.hash, key.tenant, "made" if was is None else "changed", NOTE)
    for key_id in sorted(known.keys() - {key.id for key in config.keys}):
        yield KeyChange(now, key_id, *known[key_id], REMOVED, NOTE)


def _balances(config: Config, paid: Mapping[str, int], now: float) -> Iterator[TopUp]:
    for tenant in config.tenants:
        if tenant.balance is not None and (more := round(tenant.balance * MICRO) - paid.get(tenant.name, 0)):
            yield TopUp(now, tenant.name, more, NOTE)
