"""People and their tokens: who may use the API of the lab, as what, and until when."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from orchestrator.app.app_errors import NotAuthenticated, NotPermitted
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import Role, operation
from orchestrator.app.remote.api_port import api_url, is_loopback, public_url
from orchestrator.store import tokens
from orchestrator.store.operator_change import OperatorChange
from orchestrator.store.tokens import TokenRecord
from workloads.protocol.faults import InvalidRequest

DAYS_MAX = 3650.0
CODE_MINUTES = 15
SESSION_DAYS = 30
SESSION_PREFIX = "session."  # of the secret in a cookie, which is no token


@dataclass(frozen=True)
class NewToken:
    """A new token, and its secret."""

    token: TokenRecord
    secret: str


@dataclass(frozen=True)
class NewLoginLink:
    """A link to the web page of the lab that works once."""

    url: str
    expires_at: datetime


@operation(Role.ADMIN)
def add_token(lab: LabConnection, person: str, role: Role, days: float) -> NewToken:
    """Create a token for a person that ends after some days; the secret is shown only once."""
    if not 0 < days <= DAYS_MAX:
        raise InvalidRequest(f"a token is valid for more than 0 and at most {DAYS_MAX:.0f} days")
    expires_at = datetime.now(UTC) + timedelta(days=days)
    return NewToken(*tokens.add_token(lab.store, person, str(role), expires_at, lab.actor()))


@operation(Role.ADMIN)
def add_login_link(lab: LabConnection, person: str) -> NewLoginLink:
    """Create a link that opens the web page of the lab once, for read-only access."""
    expires_at = datetime.now(UTC) + timedelta(minutes=CODE_MINUTES)
    settings = lab.lab.settings.api
    local = is_loopback(settings.listen.rpartition(":")[0])
    url = public_url(settings) if settings.names and not local else api_url(settings)
    code = tokens.add_token(
        lab.store, person, str(Role.VIEWER), expires_at, lab.actor(), once=True
    )[1]
    return NewLoginLink(f"{url}/login/{code}", expires_at)


def begin_session(lab: LabConnection, code: str) -> NewToken:
    """Exchange the code of a link for the token of a session; the code cannot be used again."""
    spent = tokens.spend_code(lab.store, code)
    if spent is None:
        raise NotAuthenticated("the link was already used or has expired; ask for a new one")
    expires_at = datetime.now(UTC) + timedelta(days=SESSION_DAYS)
    actor = lab.for_user(spent.person).actor()
    given = (lab.store, spent.person, spent.role, expires_at, actor)
    return NewToken(*tokens.add_token(*given, prefix=SESSION_PREFIX))


@operation(Role.ADMIN)
def list_tokens(lab: LabConnection) -> list[TokenRecord]:
    """List all tokens, newest first; secrets are not stored."""
    return tokens.list_tokens(lab.store)


@operation(Role.ADMIN)
def revoke_token(lab: LabConnection, token: str, dry_run: bool = False) -> OperatorChange:
    """End a token at once."""
    return tokens.revoke_token(lab.store, token, lab.actor(dry_run))


def authenticate(lab: LabConnection, secret: str, is_session: bool = False) -> TokenRecord:
    """Return the valid token with a secret; otherwise raise NotAuthenticated with the reason.

    The secret of a session is no token: whoever copies a cookie cannot call operations with it.
    """
    if not secret:
        raise NotAuthenticated("the request has no token; set FARM_TOKEN")
    found = tokens.find_token(lab.store, secret)
    if found is None or found.once or secret.startswith(SESSION_PREFIX) != is_session:
        raise NotAuthenticated("the token is unknown; ask an admin for a new one")
    if found.revoked:
        raise NotAuthenticated(f"the token {found.id} was revoked; ask an admin for a new one")
    if not found.is_valid(datetime.now(UTC)):
        ended = f"{found.expires_at:%Y-%m-%d %H:%M}"
        raise NotAuthenticated(
            f"the token {found.id} expired at {ended} UTC; ask an admin for a new one"
        )
    return found


def require_role(token: TokenRecord, needed: Role) -> None:
    """Refuse a token whose role does not include what an operation needs."""
    if not Role(token.role).includes(needed):
        raise NotPermitted(
            f"{token.person} is a {token.role}, but this needs the role {needed}; ask an admin"
        )
