"""nginx as a plain reverse proxy, one worker: what no gateway in Python, Go or Rust will match."""

from bench.process import Command
from bench.target import Plan, Target, need_program

CONFIG = """\
worker_processes 1;
daemon off;
pid {where}/nginx.pid;
error_log {where}/error.log;
events {{ worker_connections 20000; }}
http {{
    access_log off;
    client_body_temp_path {where}/body;
    proxy_temp_path {where}/proxy;
    fastcgi_temp_path {where}/fastcgi;
    uwsgi_temp_path {where}/uwsgi;
    scgi_temp_path {where}/scgi;
    keepalive_requests 100000000;
    upstream provider {{ server 127.0.0.1:{upstream}; keepalive 1024; keepalive_requests 100000000; }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://provider;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
"""


def command(plan: Plan) -> Command:
    """`nginx` with a configuration of its own."""
    config = plan.where / "nginx.conf"
    config.write_text(CONFIG.format(where=plan.where, port=plan.port, upstream=plan.upstream))
    return Command(
        (need_program("nginx"), "-p", str(plan.where), "-c", str(config), "-e", str(plan.where / "error.log")),
        plan.port,
    )


TARGET = Target("nginx", command=command)
