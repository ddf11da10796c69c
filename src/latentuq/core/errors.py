"""The one exception a user can cause."""


class UserError(ValueError):
    """Something the caller got wrong, said in one sentence that names the value and the way out.

    The command line prints the sentence and exits with code 2; in Python it is a `ValueError`.
    """
