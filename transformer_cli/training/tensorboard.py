"""The logger that writes for TensorBoard."""

import threading
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch.utils.tensorboard.writer import SummaryWriter

from transformer_cli.config.run_logger import LoggedRun, RunLogger

_FOLDER = "tensorboard"  # in the run directory


class TensorBoard(RunLogger):
    """Writes event files. It raises OSError, also what its thread has met since the call before."""

    def __init__(self, run: LoggedRun) -> None:
        super().__init__(run)
        self._excepthook, threading.excepthook = threading.excepthook, self._end_of_thread
        self._board: SummaryWriter | None = None
        try:
            self._open(run.step)
        except OSError:
            threading.excepthook = self._excepthook
            raise

    def _open(self, step: int) -> None:
        self._board = SummaryWriter(self.run.run_dir / _FOLDER, purge_step=step + 1)

    def scalars(self, step: int, kind: str, values: Mapping[str, float]) -> None:
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(f"{kind}/{name}", value, step)
            self._board.flush()

    def text(self, step: int, tag: str, text: str) -> None:
        if self._board is not None:
            self._board.add_text(tag, text, step)

    def picture(self, step: int, tag: str, picture: NDArray[np.uint8]) -> None:
        if self._board is not None:
            self._board.add_image(tag, picture, step, dataformats="HW")

    def go_back(self, step: int) -> None:
        board, self._board = self._board, None
        if board is not None:
            board.close()
        self._open(step)

    def close(self) -> None:
        try:
            if self._board is not None:
                self._board.close()
        finally:
            threading.excepthook = self._excepthook

    def _end_of_thread(self, ended: threading.ExceptHookArgs) -> None:
        """TensorBoard writes in a thread, hands what goes wrong there to the next call, and need not print it too."""
        if not isinstance(ended.exc_value, OSError):
            self._excepthook(ended)
