"""Runs the API: opens the port, and serves until the process is stopped by a signal."""

import logging
import os
import threading

from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.remote.api_port import open_port
from orchestrator.app.services.run_service import watch_connections
from workloads.lab.connection_url import BadSettings
from workloads.lab.service_health import ServiceHealth

log = logging.getLogger("farm.api")
CONNECTIONS_MAX = 200
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

        from orchestrator.api.request_counter import RequestCounter
        from orchestrator.api.request_timeout import RequestTimeoutProtocol
        from orchestrator.api.service_routes import build_app

        lab.store.check()
        config = uvicorn.Config(
            RequestCounter(build_app(lab), health.metrics),
            http=RequestTimeoutProtocol,
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=IDLE_TIMEOUT_S,
            timeout_graceful_shutdown=2,
            ssl_certfile=files["cert_file"],
            ssl_keyfile=files["key_file"],
        )
        log.info("the API listens on %s", settings.listen)
        watch = threading.Thread(target=watch_connections, args=(lab.lab, health), daemon=True)
        watch.start()
        uvicorn.Server(config).run(sockets=[listener])
