"""The connection to Redis, which both sides use; errors of Redis become BrokerDown."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self

import redis

from workloads.lab.connection_url import refuse_unverified, without_password, without_user
from workloads.protocol.faults import BrokerDown, InvalidRequest

TIMEOUT_S, CONNECT_TIMEOUT_S, HEALTH_CHECK_S = 10, 3, 30
PROTECTED_MODE = "DENIED"  # the error code of a Redis that refuses clients without a password


class RedisConnection(AbstractContextManager["RedisConnection"]):
    """A connection to the broker, opened when it is first needed."""

    def __init__(self, url: str) -> None:
        self.url = url
        refuse_unverified(url)
        # The type stubs cover all protocols and decodings at once; only one is used here.
        try:
            self._redis: Any = redis.Redis.from_url(
                url,
                protocol=2,
                socket_timeout=TIMEOUT_S,
                socket_connect_timeout=CONNECT_TIMEOUT_S,
                health_check_interval=HEALTH_CHECK_S,
            )
        except ValueError as error:
            shown = without_password(url)
            raise InvalidRequest(f"the broker URL {shown} is invalid: {error}") from error

    def check(self) -> None:
        """Raise BrokerDown if the broker does not answer."""
        with self._translated():
            self._redis.ping()

    def allows_anonymous_access(self) -> bool:
        """Whether a client without a user name and a password may use the broker."""
        anonymous = redis.Redis.from_url(
            without_user(self.url), protocol=2, socket_timeout=CONNECT_TIMEOUT_S
        )
        try:
            anonymous.ping()
        except (redis.AuthenticationError, redis.exceptions.NoPermissionError):
            return False
        except redis.RedisError as error:
            if str(error).partition(" ")[0] == PROTECTED_MODE:
                return False
            raise BrokerDown(
                f"the broker at {without_password(self.url)} returned an error: {error}"
            ) from error
        finally:
            anonymous.close()
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._redis.close()

    def _repaired(self, key: str | tuple[str, ...], action: Callable[[], Any]) -> Any:
        """Run an action on keys; if the broker refuses it, delete them and try once more.

        A key that has the wrong type, or a stream that can grow no more, counts as absent.
        """
        with self._translated():
            try:
                return action()
            except redis.ResponseError:
                self._redis.delete(*((key,) if isinstance(key, str) else key))
                return action()

    def _beginnings(self, keys: Sequence[str], limit: int) -> list[bytes]:
        """Return the text under each key, at most one byte more than the limit.

        A key that is missing or has another type counts as empty.
        """
        with self._translated(), self._redis.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.getrange(key, 0, limit)
            texts = pipe.execute(raise_on_error=False)
        return [b"" if isinstance(text, redis.ResponseError) else text for text in texts]

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except redis.ResponseError as error:
            shown = without_password(self.url)
            raise BrokerDown(f"the broker at {shown} refuses a command: {error}") from error
        except (redis.RedisError, OSError) as error:
            shown = without_password(self.url)
            raise BrokerDown(f"the broker at {shown} cannot be reached: {error}") from error
