"""The sampler over an endpoint of the user's: an `HttpSampler` whose mistakes of the user's read as such."""

from __future__ import annotations

from selfevolve.config.backends import Backend
from selfevolve.sampling.endpoint import Api, Endpoint
from selfevolve.sampling.http_sampler import HttpSampler
from selfevolve.serving.process import ServerError


class HostedSampler(HttpSampler):
    """Answer prompts at the user's endpoint."""

    def __init__(self, backend: Backend, model: str, name: str) -> None:
        """Read the key; nothing is sent yet.

        Raises:
            ServerError: the key's variable is not set.
        """
        try:
            endpoint = Endpoint(
                backend.base_urls,
                model,
                Api(backend.api),
                api_key_env=backend.api_key_env,
                concurrency=backend.concurrency,
                total_seconds=backend.request_seconds,
                read_seconds=min(backend.request_seconds, Endpoint.read_seconds),
            )
            super().__init__(endpoint, name)
        except ValueError as error:
            raise ServerError(f"{name}: {error}") from None

    def check(self, seconds: float = 10.0) -> None:
        """Ask every address whether it serves the model.

        Raises:
            ServerError: nothing answers, the key is refused, or the model is not served.
        """
        try:
            super().check(seconds)
        except ValueError as error:
            raise ServerError(
                f"{self.name}: {error}", "mend the endpoint, then go on with `selfevolve resume`"
            ) from None
