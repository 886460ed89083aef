"""What `[state]` may say: a path, and what only makes sense with one; an address is never shown."""

import pytest

from trioproxy.config.load import parse_config
from trioproxy.config.secrets import DATABASE, resolve_all
from trioproxy.config.show import render
from trioproxy.errors import ConfigError

REST = """
[[channels]]
name = "a"
base_url = "http://127.0.0.1:9/v1"
auth = "none"
[[models]]
name = "m"
channels = [ { channel = "a", model = "m" } ]
"""
ADDRESS = "postgresql://gateway:secret@db/ledger"


def fault(state: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"[state]\n{state}\n{REST}", "gateway.toml")
    (only,) = caught.value.faults
    return str(only)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ('spool = "x"', "state.spool (line 2): does nothing without path"),
        ('url = { env = "X" }', "state.url (line 2): does nothing without path"),
        ('path = ""', 'state.path (line 2): "" is no path'),
        (f'path = "{ADDRESS}"', "state.path (line 2): is no file: give a database's address by url"),
        ('path = "x"\nspool_size = 1000', "state.spool_size (line 3): 1000 is too little"),
        ('path = "x"\nretention_days = -1', "state.retention_days (line 3): -1.0 is too little"),
        ('path = "x"\nsnapshot_every = 0', "state.snapshot_every (line 3): 0.0 is not a time to wait"),
        ('path = "x"\nurl = {}', "state.url (line 3): nothing given"),
    ],
)
def test_what_cannot_act_is_a_fault(state: str, said: str) -> None:
    told = fault(state)
    assert told.startswith(said)
    assert "secret" not in told


def test_nothing_is_kept_unless_it_is_asked_for() -> None:
    assert parse_config(REST, "gateway.toml").state.path is None


def test_the_address_is_resolved_with_the_keys_and_shown_by_nobody() -> None:
    config = parse_config(f'[state]\npath = "x"\nurl = {{ value = "{ADDRESS}" }}\n{REST}', "gateway.toml")
    assert resolve_all(config, {}) == {DATABASE: ADDRESS}
    assert "secret" not in render(config)
    assert "secret" not in repr(config)
    assert '[state]\npath = "x"' in render(config)
