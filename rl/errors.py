"""The one class of errors that a command reports in a line and answers with exit code 2."""


class InputError(ValueError):
    """What the user gave cannot be used; the text names the value, the limit and the way on."""


def together(*calls) -> list:
    """What the calls give, in order; an InputError with the text of each that raises one, so that all is told at once."""
    found, problems = [], []
    for call in calls:
        try:
            found.append(call())
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError("\n".join(dict.fromkeys(problems)))
    return found
