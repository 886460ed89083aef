"""HAProxy as a plain HTTP reverse proxy, one thread."""

from bench.process import Command
from bench.target import Plan, Target, need_program

CONFIG = """\
global
    nbthread 1
    maxconn 9000
defaults
    mode http
    timeout connect 5s
    timeout client 300s
    timeout server 300s
    http-reuse always
frontend door
    bind 127.0.0.1:{port}
    default_backend provider
backend provider
    server a 127.0.0.1:{upstream}
"""


def command(plan: Plan) -> Command:
    """`haproxy` with a configuration of its own."""
    config = plan.where / "haproxy.cfg"
    config.write_text(CONFIG.format(port=plan.port, upstream=plan.upstream))
    return Command((need_program("haproxy"), "-db", "-f", str(config)), plan.port)


TARGET = Target("haproxy", command=command)
