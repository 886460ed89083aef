"""`trioproxy ledger`: what it sums up, in every format, beside a gateway that runs."""

import csv
import io
import json
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner
from trio.testing import MockClock

from tests.acceptance.limited import bearer, key
from tests.fakes import steps
from tests.scene import CHAT, PROMPT, scene
from trioproxy.cli import main
from trioproxy.config.load import parse_config
from trioproxy.journal import EndReason, ExchangeEnded, Usage


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["ledger", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def file(folder: Path, path: str) -> str:
    written = folder / "gateway.toml"
    written.write_text(
        f'[state]\n{path}\n[[channels]]\nname = "a"\nbase_url = "http://127.0.0.1:9/v1"\nauth = "none"\n'
        '[[models]]\nname = "m"\nchannels = [ { channel = "a", model = "m" } ]\n'
    )
    parse_config(written.read_text(), "gateway.toml")
    return str(written)


async def test_it_sums_up_beside_a_gateway_that_runs(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "ledger.db"
    config = file(tmp_path, f'path = "{path}"')
    callers = key("one", 'tenant = "acme"') + key("two", 'tenant = "acme"') + key("three", 'tenant = "other"')
    async with scene("a", "b", toml=f'[state]\npath = "{path}"\n{callers}') as s:
        s.a.script(steps.chat("hello"), steps.error(500), steps.chat("hello"))
        s.b.script(steps.chat("hello"))
        for name in ("one", "two", "three"):
            await s.post(headers=[*bearer(name), ("x-request-id", f"call-{name}")])
        await s.rest()
        detour = ExchangeEnded("d", EndReason.ANSWERED, 200, "", "m", usage=Usage(1, 0, 1), cost=9, preferred_cost=5)
        s.gateway.journal.emit(detour)
        assert s.gateway.store is not None
        await s.gateway.store.run(lambda _database: None)

        rows = json.loads(run(config, "--by", "tenant,key", "--format", "json"))
        assert [(row["tenant"], row["key"], row["calls"], row["input"]) for row in rows] == [
            ("", "", 1, 1),
            ("acme", "one", 1, 9),
            ("acme", "two", 1, 9),
            ("other", "three", 1, 9),
        ]
        assert [row["cost"] for row in rows] == [0.000009, 0.000021, 0.000042, 0.000021]
        assert [row["detour"] for row in rows] == [0.000004, 0.0, 0.000021, 0.0]

        (row,) = csv.DictReader(io.StringIO(run(config, "--by", "channel", "--where", "channel=b", "--format", "csv")))
        assert (row["channel"], row["calls"], row["cost"]) == ("b", "1", "4.2e-05")

        table = run(config, "--by", "day,class", "--where", "tenant=acme").splitlines()
        assert table[0].split()[:3] == ["day", "class", "calls"]
        assert table[1].split()[:3] == ["2025-11-24", "default", "2"]

        assert run(config, "--since", "2025-11-25").strip() == "no calls"
        assert run(config, "--until", "2025-11-24").strip() == "no calls"
        assert "2" in run(config, "--since", "2025-11-24T00:00Z", "--until", "2025-11-25", "--where", "tenant=acme")

        told = run(config, "--call", "call-two")
        assert "1. a" in told
        assert "server_error (500)" in told
        assert "2. b" in told
        (call,) = json.loads(run(config, "--call", "call-two", "--format", "json"))
        assert (call["cost"], len(call["tries"])) == (0.000042, 2)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--by", "tennant"], 2, "'tennant' is none of tenant, key"),
        (["--where", "tenant"], 2, "write NAME=VALUE"),
        (["--since", "yesterday"], 2, "give a day (2030-01-31)"),
        (["--call", "nobody"], 1, "there is no call 'nobody' in the ledger"),
    ],
)
async def test_what_is_asked_wrongly_is_said(
    arguments: list[str], code: int, said: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    path = tmp_path / "ledger.db"
    async with scene("a", toml=f'[state]\npath = "{path}"\n'):
        pass
    assert said in run(file(tmp_path, f'path = "{path}"'), *arguments, code=code)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "there is no ledger"),
        ('path = ":memory:"', "there is no ledger"),
        (
            'path = "/nowhere/ledger.db"',
            "cannot be read: there is no such file yet: a gateway makes it when it is served",
        ),
        ('path = "x"\nurl = { env = "NOT_SET_ANYWHERE" }', "NOT_SET_ANYWHERE is not set"),
        ('path = "x"\nurl = { value = "postgresql://nobody:secret@127.0.0.1:9/x" }', "cannot be read"),
        ('path = "x"\nurl = { value = "mysql://nobody" }', "does not begin with postgresql://"),
    ],
)
def test_a_ledger_that_cannot_be_read_is_one_sentence(path: str, said: str, tmp_path: Path) -> None:
    told = run(file(tmp_path, path), code=1)
    assert said in told
    assert "secret" not in told
    assert len(told.strip().splitlines()) == 1


def test_a_file_that_is_no_ledger_is_said(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"no database" * 1000)
    assert "is not a database" in run(file(tmp_path, f'path = "{tmp_path / "x"}"'), code=1)


async def test_it_tells_how_often_each_channel_answered_hour_by_hour(tmp_path: Path, autojump_clock: MockClock) -> None:
    """A bad hour shows; a caller who left, or made a fault of its own, speaks for nobody and against nobody."""
    path = tmp_path / "ledger.db"
    config = file(tmp_path, f'path = "{path}"')
    async with scene("a", "b", toml=f'[state]\npath = "{path}"\n', wall=1_764_000_000.0) as s:  # 16:00 UTC
        s.b.script(steps.chat("hello"))
        s.a.script(
            steps.chat("hello"), steps.chat("hello"), steps.error(500), steps.error(400, {"error": {"message": "no"}})
        )
        for _ in range(4):
            await s.post()
        s.a.script(steps.silence())
        client = await s.client()
        await client.wire.send(client.request("POST", CHAT, PROMPT))
        await trio.sleep(1)
        client.close()
        await trio.sleep(3600)
        s.a.script(steps.error(429), steps.chat("hello"))
        await s.post()
        await s.rest()
        assert s.gateway.store is not None
        await s.gateway.store.run(lambda _database: None)
        rows = json.loads(run(config, "--attempts", "--by", "hour,model,channel", "--format", "json"))
        assert [tuple(row.values()) for row in rows] == [
            ("2025-11-24T16:00Z", "m", "a", 5, 2, 0, 1, 2 / 3),
            ("2025-11-24T16:00Z", "m", "b", 1, 1, 0, 0, 1.0),
            ("2025-11-24T17:00Z", "m", "a", 1, 0, 1, 0, 0.0),
            ("2025-11-24T17:00Z", "m", "b", 1, 1, 0, 0, 1.0),
        ]
        table = run(config, "--attempts", "--by", "channel", "--where", "fault=bad_request").splitlines()
        assert table[1].split() == ["a", "1", "0", "0", "0", "-"]
        (late,) = json.loads(run(config, "--by", "hour", "--since", "2025-11-24T17:00Z", "--format", "json"))
        assert (late["hour"], late["calls"]) == ("2025-11-24T17:00Z", 1)
    assert "attempts have no 'session'" in run(config, "--attempts", "--by", "session", code=2)
