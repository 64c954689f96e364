"""What an exception says."""


def cause(error: BaseException) -> str:
    """Never empty, as the text of a TimeoutError is."""
    return str(error) or type(error).__name__
