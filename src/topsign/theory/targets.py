"""Targets that no code meets."""


class TargetError(ValueError):
    """No code meets the target; the message names the best that can be reached."""
