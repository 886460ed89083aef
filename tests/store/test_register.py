"""What the configuration says of keys and balances is history in the ledger: a row for what changed, none for what did not."""

from pathlib import Path

from trio.testing import MockClock

from tests.acceptance.limited import key
from tests.scene import scene
from tests.store.test_kept import rows, state

KEYS = "SELECT key_id, tenant, state FROM keys ORDER BY position"
PAID = "SELECT tenant, micro_usd, note FROM balances ORDER BY position"


def tenant(balance: float) -> str:
    return f'\n[[tenants]]\nname = "acme"\nbalance = {balance}\n'


async def started(path: Path, rest: str) -> None:
    async with scene("a", toml=state(path) + rest):
        pass


async def test_a_start_records_what_changed_since_the_last_one(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "ledger.db"
    await started(path, tenant(5) + key("one", 'tenant = "acme"') + key("two"))
    await started(path, tenant(5) + key("one", 'tenant = "acme"') + key("two"))
    assert rows(path, KEYS) == [("one", "acme", "made"), ("two", "default", "made")]
    assert rows(path, PAID) == [("acme", 5_000_000, "configuration")]

    await started(path, tenant(7.5) + key("one"))
    assert rows(path, KEYS)[2:] == [("one", "default", "changed"), ("two", "default", "removed")]
    assert rows(path, PAID)[1:] == [("acme", 2_500_000, "configuration")]

    await started(path, tenant(1) + key("one") + key("two"))
    assert rows(path, KEYS)[4:] == [("two", "default", "made")]
    assert rows(path, PAID)[2:] == [("acme", -6_500_000, "configuration")]


async def test_no_key_is_in_the_ledger(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "ledger.db"
    await started(path, key("one"))
    ((told,),) = rows(path, "SELECT hash FROM keys")
    assert told.startswith("sha256:")
