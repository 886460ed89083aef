"""Where a credential is found, as a file says it; the credential itself is in no configuration object's `repr`."""

from attrs import field, frozen


@frozen
class Secret:
    """Where a credential is found: exactly one of an environment variable, a file, or (with a warning) the value."""

    env: str | None = None
    file: str | None = None
    value: str | None = field(default=None, repr=False)
