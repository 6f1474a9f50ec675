"""What is answered to a request that cannot be done."""


class RequestError(Exception):
    """An HTTP status, and one line for people: what is wrong, where, what to do. `retry_after` is in seconds."""

    def __init__(self, status: int, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after
