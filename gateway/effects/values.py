"""What the rooms of the outside world share."""

from gateway.errors import GatewayError


class EffectError(GatewayError):
    """It could not be done. The text names what and why, and holds neither a secret nor a whole URL."""
