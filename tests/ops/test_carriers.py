"""The ways out by themselves: commands as real processes, webhooks cut anywhere, and what neither shows."""

import json
import os
import sys
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.fakes import steps
from tests.fakes.cancel import cancel_everywhere
from tests.fakes.network import open_network
from tests.fakes.upstream import FakeUpstream
from trioproxy.config.model import Alerts, Secret, Sink
from trioproxy.http.wire import Wire
from trioproxy.journal import AlertTold
from trioproxy.ops.alerts import trial, wrapper
from trioproxy.ops.carriers import Command, _kill, carriers
from trioproxy.ops.couriers import Courier, Miss, Parcel, tried

PARCEL = Parcel("msg_1", b'{"type":"alert.raised"}')


def python(program: str, *arguments: object) -> Command:
    return Command("test", (sys.executable, "-c", program, *map(str, arguments)))


async def run(command: Command, seconds: float = 15.0) -> Miss | None:
    return await tried(command, PARCEL, seconds)


async def test_a_command_reads_the_alert_and_sees_no_key_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    program = "import json, os, sys; json.dump([sys.stdin.read(), dict(os.environ)], open(sys.argv[1], 'w'))"
    assert await run(python(program, tmp_path / "out")) is None
    read, environment = json.loads((tmp_path / "out").read_text())
    assert read.encode() == PARCEL.body
    assert "PATH" in environment
    assert "sk-secret" not in environment.values()


async def test_arguments_meet_no_shell(tmp_path: Path) -> None:
    program = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"
    assert await run(python(program, tmp_path / "out", "$(id); *")) is None
    assert (tmp_path / "out").read_text() == "$(id); *"


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("raise SystemExit(3)", "it ended with 3"),
        ("import os; os.kill(os.getpid(), 9)", "it ended by signal 9"),
        ("print('x' * 10**6)", None),
        ("", None),
    ],
)
async def test_a_command_is_judged_by_its_end(program: str, why: str | None) -> None:
    assert await run(python(program)) == (None if why is None else Miss(why))


async def test_a_command_that_is_not_there_is_a_miss() -> None:
    assert await run(Command("test", ("/no/such/program",))) == Miss("it cannot be run: No such file or directory")


async def test_a_command_that_hangs_is_killed_with_all_that_it_has_started(tmp_path: Path) -> None:
    """It ignores SIGTERM, and so does its child."""
    program = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "pids = [os.getpid(), os.fork() or os.getpid()]\n"
        "open(f'{sys.argv[1]}/{os.getpid()}', 'w')\n"
        "time.sleep(1000)"
    )
    assert await run(python(program, tmp_path), 1.5) == Miss("nothing within 1.5 s")
    pids = [int(name) for name in os.listdir(tmp_path)]  # noqa: PTH208 - a listing of a moment
    assert len(pids) == 2
    with trio.fail_after(10):
        while any(map(alive, pids)):
            await trio.lowlevel.checkpoint()


async def test_a_command_that_ends_as_it_is_to_be_killed_is_no_error() -> None:
    process = await trio.lowlevel.open_process([sys.executable, "-c", ""], start_new_session=True)
    await process.wait()
    await _kill(process)
    assert process.returncode == 0


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


async def test_a_command_runs_once_at_a_time(tmp_path: Path) -> None:
    program = (
        "import os, sys, time\n"
        "os.mkdir(sys.argv[1] + '/running')\n"
        "time.sleep(0.05)\n"
        "os.rmdir(sys.argv[1] + '/running')\n"
        "open(sys.argv[1] + '/done', 'a').write('x')"
    )
    lost: list[str] = []
    sink = Sink(command=("x",), tries=1)
    courier = Courier(python(program, tmp_path), sink, lambda _: b"{}", lambda *told: lost.append(told[2]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(courier.run)
        for _ in range(4):
            courier.offer(trial(0.0))
        with trio.fail_after(15):
            while not ((tmp_path / "done").exists() and (tmp_path / "done").read_text() == "xxxx"):
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel("all have run")
    assert lost == []


class Broken:
    """A carrier with a bug."""

    name = "broken"

    async def deliver(self, parcel: Parcel) -> Miss | None:
        await trio.lowlevel.checkpoint()
        raise KeyError(parcel.id)


async def test_a_bug_in_a_carrier_is_a_miss() -> None:
    assert await tried(Broken(), PARCEL, 1.0) == Miss("a bug: KeyError")


async def test_a_webhook_that_is_cut_anywhere_leaves_no_connection(autojump_clock: MockClock) -> None:
    settings = Alerts(sinks=(Sink(url="http://hook.test/x"),))
    async with open_network() as network:
        receiver = FakeUpstream("hook").script(steps.after(1, steps.error(200))).listen(network)
        ((_, webhook),) = carriers(settings, {}, network.dial, lambda: 0.0)

        async def scenario() -> None:
            with trio.CancelScope():
                await webhook.deliver(PARCEL)

        def check() -> None:
            assert not any(receiver.errors)

        assert await cancel_everywhere(scenario, check) >= 3  # dialling, waiting for the answer, its end
        await trio.testing.wait_all_tasks_blocked()
        assert receiver.open == 0


def test_nothing_that_is_shown_has_a_secret() -> None:
    sink = Sink(url="https://user.example/services/T0KEN?key=T0KEN", secret=Secret(value="whsec_c2VjcmV0"))
    settings = Alerts(source="gw", sinks=(sink, Sink(command=("/opt/notify", "--token", "T0KEN"))))
    made = carriers(settings, {"alerts.sinks[0]": "whsec_c2VjcmV0"}, open_nothing, lambda: 0.0)
    assert [carrier.name for _, carrier in made] == ["alerts.sinks[0] (user.example)", "alerts.sinks[1] (notify)"]
    shown = repr(settings.sinks[0]) + repr(made[0]) + repr([carrier for _, carrier in made])
    assert "T0KEN" not in shown
    assert "secret" not in shown.replace("secret=Secret", "")


async def open_nothing(host: str, port: int, tls: object) -> Wire:
    raise AssertionError(f"{host}:{port} is not to be dialled {tls}")


def test_the_source_is_the_machine_where_none_is_given() -> None:
    alert: AlertTold = trial(0.0)
    told = json.loads(wrapper(Alerts(), lambda: 0.0)(alert))
    assert told["data"]["source"] == os.uname().nodename
    assert told["timestamp"] == "1970-01-01T00:00:00.000Z"
