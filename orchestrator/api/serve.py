"""Runs the API: opens the port, and serves until the process is stopped by a signal."""

import logging
import os
import resource
import threading
from functools import partial
from typing import Any, cast

from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.remote.api_port import open_port
from orchestrator.app.services.run_service import watch_connections
from workloads.lab.connection_url import BadSettings
from workloads.lab.service_health import ServiceHealth

log = logging.getLogger("farm.api")
FILES_MAX = 65_536  # open ones, where the system allows it: connections wait for their encryption
IDLE_TIMEOUT_S = 30


def serve_api(lab: LabConnection, health: ServiceHealth) -> None:
    settings = lab.lab.settings.api
    files = {}
    for name, file in (("cert_file", settings.cert_file), ("key_file", settings.key_file)):
        files[name] = lab.lab.root / file if file else None
        if file and not os.access(lab.lab.root / file, os.R_OK):
            raise BadSettings(f"api.{name} '{lab.lab.root / file}' cannot be read")
    with open_port(settings) as listener:
        import uvicorn

        from orchestrator.api.connection_protocol import ConnectionProtocol
        from orchestrator.api.open_connections import OpenConnections
        from orchestrator.api.request_counter import RequestCounter
        from orchestrator.api.service_routes import build_app

        lab.store.check()
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(allowed, FILES_MAX), allowed))
        connections = OpenConnections()
        config = uvicorn.Config(
            RequestCounter(build_app(lab, connections), health.metrics),
            http=cast(Any, partial(ConnectionProtocol, connections)),
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # the limits are those of connections
            timeout_keep_alive=IDLE_TIMEOUT_S,
            timeout_graceful_shutdown=2,
            ssl_certfile=files["cert_file"],
            ssl_keyfile=files["key_file"],
        )
        log.info("the API listens on %s", settings.listen)
        watch = threading.Thread(target=watch_connections, args=(lab.lab, health), daemon=True)
        watch.start()
        uvicorn.Server(config).run(sockets=[listener])
