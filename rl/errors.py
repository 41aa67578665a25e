"""The errors that a command prints without a traceback, ending with exit code 2."""


class InputError(ValueError):
    """Unusable input; the text names the value, the limit and the way on."""


class NotFinite(InputError):
    """Loss, entropy or an adapter became NaN or infinite; the text says what and where."""


def together(*calls) -> list:
    """The results of the calls, in order; one InputError with the texts of all that raise one."""
    results, problems = [], []
    for call in calls:
        try:
            results.append(call())
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError("\n".join(dict.fromkeys(problems)))
    return results
