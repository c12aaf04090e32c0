"""Who asks: the person of a request's token or session, and what one person may use at once."""

from starlette.requests import Request

from orchestrator.api.open_connections import OpenConnections
from orchestrator.api.open_streams import OpenStreams
from orchestrator.api.request_places import RequestPlaces
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.manage_tokens import authenticate, require_role
from orchestrator.app.operation import Role


class Visitors:
    """Authenticates requests; connections, requests and streams are limited by person."""

    def __init__(self, lab: LabConnection, connections: OpenConnections) -> None:
        self._lab = lab
        self._connections = connections
        self.streams = OpenStreams()
        self.places = RequestPlaces()

    def person_of(self, request: Request, secret: str, role: Role, is_session: bool = False) -> str:
        """Return who sent a request; NotAuthenticated or NotPermitted if they may not."""
        token = authenticate(self._lab, secret, is_session)
        peer = request.client
        self._connections.admit((peer.host, peer.port) if peer else None, token.person)
        require_role(token, role)
        return token.person
