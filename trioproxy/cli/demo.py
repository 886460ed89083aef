"""`trioproxy demo`: the gateway in front of three scripted upstreams, to break by hand and watch.

Everything runs in this process on loopback addresses: no key, no file, nothing leaves the machine. The deadlines are a
tenth of the real ones, so that a stall is over while one still watches.
"""

from collections.abc import Mapping
from functools import partial

import click
import trio
from attrs import frozen

from trioproxy.cli.serve import first
from trioproxy.config.model import Config
from trioproxy.sim.upstream import Manner, ScriptedUpstream

MODEL = "demo-model"
KEYS = "Ctrl-C ends it."


@frozen
class Member:
    """One upstream of the demo. Prices are USD per million tokens."""

    name: str
    input: float
    output: float
    manner: Manner
    character: str


CAST = (
    Member("thrifty", 0.10, 0.40, Manner(first=0.4, every=0.06, trips=4), "cheap; every 4th call fails"),
    Member("steady", 0.50, 1.50, Manner(first=0.25, every=0.04), "dependable"),
    Member("premium", 2.00, 8.00, Manner(first=0.05, every=0.01), "dear and fast"),
)

CONFIG = """
[listen]
data = "127.0.0.1:{port}"
drain_timeout = 2

[defaults]                    # a tenth of the real deadlines
headers_timeout = 5
gate_timeout = 3
on_gate_timeout = "failover"
idle_timeout = 3
breaker = {{ failures = 3, window = 60, open_for = 15, probes = 1 }}

[log]
format = "{log}"

[[models]]
name = "{model}"
channels = [{links}]
"""

CHANNEL = """
[[channels]]
name = "{name}"
base_url = "http://127.0.0.1:{port}/v1"
auth = "none"
price = {{ input = {input}, output = {output} }}
"""


@click.command("demo")
@click.option("--port", type=click.IntRange(0, 65535), default=8787, show_default=True, help="0: the system chooses.")
@click.option("--log", type=click.Choice(["human", "json"]), default="human", show_default=True)
def command(*, port: int, log: str) -> None:
    """Watch failover happen: a gateway and three upstreams that break when you tell them to.

    \b
    Examples:
      trioproxy demo                    prints what to type next
      trioproxy demo --port 0 --log json
    """  # noqa: D301 - click reads the backspace
    failure = None
    try:
        failure = trio.run(run, port, log)
    except* KeyboardInterrupt:
        click.echo(err=True)  # behind the terminal's ^C
    except* SystemExit:  # rich's answer to a broken pipe
        failure = "nobody reads what it shows"
    if failure is not None:
        raise click.ClickException(failure)


async def start(nursery: trio.Nursery) -> dict[str, int]:
    """Start the cast. The port of each, by name."""
    ports = {}
    for member in CAST:
        upstream = ScriptedUpstream(member.name, (f"{MODEL}-{member.name}",), member.manner)
        ports[member.name] = await nursery.start(upstream.run)
    return ports


async def run(port: int, log: str) -> str | None:
    """Run until the gateway ends. A sentence where it could not begin."""
    from trioproxy.app import serve  # heavy, and not needed for --help

    failure = None
    async with trio.open_nursery() as upstreams:
        ports = await start(upstreams)
        config = configuration(port, log, ports)
        try:
            async with trio.open_nursery() as gateway:
                (address, *_) = await gateway.start(partial(serve, config, credentials={}))
                introduce(address, ports)
        except* OSError as group:
            failure = f"cannot listen on 127.0.0.1:{port}: {first(group)}; try --port 0"
        upstreams.cancel_scope.cancel("the gateway has ended")
    return failure


def configuration(port: int, log: str, ports: Mapping[str, int]) -> Config:
    """The demo's configuration, through the same door as any file. `ports` is by upstream."""
    from trioproxy.config.load import parse_config

    links = ", ".join(f'{{ channel = "{name}", model = "{MODEL}-{name}" }}' for name in ports)
    text = CONFIG.format(port=port, log=log, model=MODEL, links=links)
    for member in CAST:
        text += CHANNEL.format(name=member.name, port=ports[member.name], input=member.input, output=member.output)
    return parse_config(text, "demo")


def introduce(address: str, ports: Mapping[str, int]) -> None:
    """Say what is running and what to type."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    table = Table(box=None, header_style="dim", padding=(0, 2))
    for heading in ("channel", "USD/M in, out", "character", "address"):
        table.add_column(heading, no_wrap=True)
    for member in CAST:
        price = f"{member.input:.2f}, {member.output:.2f}"
        table.add_row(f"[bold]{member.name}", price, member.character, f"127.0.0.1:{ports[member.name]}")
    console.print(f"\n[bold green]trioproxy[/] on [bold]http://{address}[/], model [bold]{MODEL}[/], cheapest first:\n")
    console.print(table)
    for title, lines in commands(address, ports).items():
        console.print(f"\n[bold]{title}[/]")
        for line in lines:
            console.print(f"  {line}", style="cyan", markup=False)
    console.print(f"\n[dim]{KEYS} The log follows.[/]\n")


def commands(address: str, ports: Mapping[str, int]) -> dict[str, list[str]]:
    """Ready to paste, by what they are for."""
    chat = f"http://{address}/v1/chat/completions -H 'content-type: application/json' -d"
    asked = f'"model":"{MODEL}","messages":[{{"role":"user","content":"Hello"}}]'
    orders = [f"{name:10}curl -X POST 'http://127.0.0.1:{port}/break?mode=503&for=30'" for name, port in ports.items()]
    return {
        "Ask": [
            f"curl {chat} '{{{asked}}}'",
            f"curl -N {chat} '{{{asked},\"stream\":true}}'",
            f"curl http://{address}/v1/models",
            f"curl http://{address}/healthz",
        ],
        "Break something, and ask again": orders,
        "Ways to break": ["mode=500 503 429 stall cut error-in-stream html, or ok to mend; for= is seconds"],
    }
