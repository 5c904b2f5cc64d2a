"""The one error that a user's mistake raises: a sentence that says what is wrong and what to do."""


class HookbookError(Exception):
    """A mistake or circumstance that the user can mend; shown as one sentence, without a traceback."""
