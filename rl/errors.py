"""The one class of errors that a command reports in a line and answers with exit code 2."""


class InputError(ValueError):
    """What the user gave cannot be used; the text names the value, the limit and the way on."""
