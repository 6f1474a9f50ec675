"""The processes that train together: one by itself, or those that torchrun has started.

Every rank holds the whole model. What the ranks tell each other while they work goes through collectives (gloo on CPUs,
NCCL between GPUs); what one of them does alone, like preparing data, reading a checkpoint or translating the dev set,
through torchrun's key-value store, where nobody is in a hurry. The first rank composes, reads, writes and speaks.
"""

import itertools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from transformer_cli.errors import ElsewhereError, EnvironmentFault, LostRankError, TfmError
from transformer_cli.training.signals import StopRequest

BEAT_S = 0.5  # how often each rank says that it is alive
SILENCE_S = 4.0  # after which it is not
GRACE_S = 20.0  # of the 30 s that torchrun gives between SIGTERM and SIGKILL


class Ranks:
    """This process's place among those that train together."""

    def __init__(
        self,
        request: StopRequest,
        *,
        rank: int = 0,
        world_size: int = 1,
        store: dist.Store | None = None,  # type: ignore[name-defined]  # torch does not list it
        timeout_s: float = 0.0,
    ) -> None:
        self.request, self.rank, self.world_size, self.timeout_s = request, rank, world_size, timeout_s
        self.stop_signal = 0  # which all ranks have agreed on
        self._store = store
        if store is not None:
            threading.Thread(target=self._beat, name="tfm-heartbeat", daemon=True).start()

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def own(self, device: torch.device) -> torch.device:
        """This rank's GPU, if `device` is one. Raises EnvironmentFault where there are fewer GPUs than ranks."""
        if device.type == "cuda" and self.world_size > 1:
            local_rank = os.environ.get("LOCAL_RANK", "")
            if not local_rank.isdecimal() or int(local_rank) >= torch.cuda.device_count():
                raise EnvironmentFault(
                    f"rank {self.rank}: LOCAL_RANK={local_rank}, but there are {torch.cuda.device_count()} GPUs here."
                    " Start as many ranks as GPUs, with torchrun"
                )
            device = torch.device("cuda", int(local_rank))
            torch.cuda.set_device(device)
        return device

    def agree(self, step: int, *, is_well: bool = True) -> bool:
        """Wait until every rank has come to `step`; from there on `stop_signal` is the same on all of them.

        Returns whether all say that they are well.
        Raises LostRankError naming the rank that does not come, ElsewhereError for one that has met a fault.
        """
        self.stop_signal = self.request.signal
        if self._store is None:
            return is_well
        self._say(f"at/{self.rank}", str(step))
        told = torch.tensor([self.stop_signal, not is_well])
        self._together(lambda: [dist.all_reduce(told, dist.ReduceOp.MAX, async_op=True)], step)
        self.stop_signal = int(told[0])
        return not told[1]

    def begin_sum(self, tensor: Tensor, step: int) -> dist.Work:
        """Begin to replace `tensor`, on this rank's device, by its sum over the ranks. Raises as `agree` does."""
        try:
            work: dist.Work = dist.all_reduce(tensor, async_op=True)
        except RuntimeError as error:
            raise self._who_is_missing(step, str(error), waited_s=0.0) from error
        return work

    def wait(self, works: Sequence[dist.Work], step: int, *, on_gpu: bool) -> None:
        """Wait for sums that have been begun. Raises as `agree` does."""
        self._together(lambda: works, step, on_gpu=on_gpu)

    def least(self, number: int) -> int:
        """The smallest of the numbers that the ranks give. Raises as `agree` does."""
        if self._store is None:
            return number
        least = torch.tensor(number)
        self._together(lambda: [dist.all_reduce(least, dist.ReduceOp.MIN, async_op=True)], 0)
        return int(least)

    def spread(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite the tensors with the first rank's."""
        for tensor in tensors if self._store is not None else ():
            self._together(partial(self._broadcast, tensor), 0, on_gpu=tensor.is_cuda)

    def _broadcast(self, tensor: Tensor) -> list[dist.Work]:
        return [dist.broadcast(tensor, src=0, async_op=True)]

    def share(self, key: str, text: str | None, *, is_patient: bool = False) -> str:
        """The text that the first rank gives under `key`; the others pass None and wait for it as long as it takes.

        Asked to stop, they wait a little, or for the timeout of the ranks if `is_patient`.
        """
        if self._store is None:
            assert text is not None
            return text
        if text is not None:
            self._say(f"shared/{key}", text)
            return text
        return self._await(f"shared/{key}", grace_s=self.timeout_s if is_patient else GRACE_S)

    def is_asked_to_stop(self) -> bool:
        """Whether this rank, or one that waits in `share`, was asked to stop."""
        if self._store is None or self.request.signal:
            return self.request.signal != 0
        with suppress(RuntimeError):  # who cannot be reached is noticed soon enough
            return self._read("stop", "") != ""
        return False

    def leave(self, error: TfmError) -> None:
        """Tell the others why this rank ends, and who says so."""
        if self._store is not None and not isinstance(error, ElsewhereError):
            speaker = error.speaker if isinstance(error, LostRankError) else 0
            with suppress(RuntimeError):
                self._store.set("fault", f"{error.exit_code} {speaker} {error}")

    def part(self) -> None:
        """The end of a run that went well. Without torchrun the first rank keeps the store: it leaves last."""
        if self._store is None:
            return
        with suppress(RuntimeError):
            self._store.set(f"left/{self.rank}", "")
            if self.is_first:
                everyone = [f"left/{rank}" for rank in range(self.world_size)]
                self._store.wait(everyone, timedelta(seconds=GRACE_S))

    def _say(self, key: str, text: str) -> None:
        assert self._store is not None
        try:
            self._store.set(key, text)
        except RuntimeError as error:
            raise self._out_of_touch(str(error)) from error

    def _await(self, key: str, *, grace_s: float) -> str:
        assert self._store is not None
        asked_at = None
        while True:
            try:
                if self._store.check([key]):
                    return self._read(key, "")
                self._refuse_fault()
                if self.request.signal and asked_at is None:
                    asked_at = time.monotonic()
                    self._store.set("stop", "stop")
            except RuntimeError as error:
                raise self._out_of_touch(str(error)) from error
            if asked_at is not None and time.monotonic() - asked_at > grace_s:
                raise self._missing("rank 0 does not answer", speaker=1)
            time.sleep(0.05)

    def _together(self, begin: Callable[[], Sequence[dist.Work]], step: int, *, on_gpu: bool = False) -> None:
        """Wait for collectives, looking up now and then, because a rank that is gone is not noticed by all others.

        Between GPUs it is the device that waits; `agree` has just found all ranks alive.
        """
        assert self._store is not None
        start = looked_up = time.monotonic()
        pause_s = 1e-5
        try:
            works = begin()
            while not on_gpu and not all(work.is_completed() for work in works):
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, 0.005)
                if time.monotonic() - looked_up > BEAT_S:
                    looked_up = time.monotonic()
                    if looked_up - start > self.timeout_s or self._store.check(["loss"]):
                        raise self._who_is_missing(step, "no answer", waited_s=looked_up - start)
            for work in works:
                work.wait()
        except RuntimeError as error:
            raise self._who_is_missing(step, str(error), waited_s=time.monotonic() - start) from error

    def _who_is_missing(self, step: int, what: str, *, waited_s: float) -> TfmError:
        """Who has no pulse; if all have one, who has not come this far."""
        assert self._store is not None
        try:
            self._store.set("loss", "")
            before = self._pulses()
            time.sleep(SILENCE_S)
            self._refuse_fault()
            after = self._pulses()
            others = [rank for rank in range(self.world_size) if rank != self.rank]
            silent = [rank for rank in others if before[rank] == after[rank]]
            late = [rank for rank in others if int(self._read(f"at/{rank}", "0")) < step]
            named = " and ".join(f"rank {rank} ({self._read(f'where/{rank}', 'unknown')})" for rank in silent or late)
        except ElsewhereError as elsewhere:
            return elsewhere
        except RuntimeError as error:
            return self._out_of_touch(str(error))
        if not named:
            return self._out_of_touch(what)
        is_gone = silent and waited_s < self.timeout_s
        did = f"does not answer, at step {step}" if is_gone else f"has not reached step {step} for {waited_s:.0f} s"
        return self._missing(f"{named} {did}", speaker=min({*range(self.world_size)} - {*(silent or late)}))

    def missing(self, step: int, what: str) -> TfmError:
        """Why a collective failed that this class has not begun."""
        return self._who_is_missing(step, what, waited_s=0.0)

    def _missing(self, what: str, *, speaker: int) -> LostRankError:
        error = LostRankError(f"{what}. Look at its own log, and run the same command again")
        error.speaker, error.speaks = speaker, self.rank == speaker
        return error

    def _beat(self) -> None:
        assert self._store is not None
        with suppress(RuntimeError):  # the store is gone, and so are the others
            for beat in itertools.count():
                self._store.set(f"pulse/{self.rank}", str(beat))
                time.sleep(BEAT_S)

    def _pulses(self) -> list[str]:
        return [self._read(f"pulse/{rank}", "") for rank in range(self.world_size)]

    def _read(self, key: str, default: str) -> str:
        assert self._store is not None
        return str(self._store.get(key), "utf-8") if self._store.check([key]) else default

    def _refuse_fault(self) -> None:
        """Raise ElsewhereError if another rank has told why it left."""
        assert self._store is not None
        if fault := self._read("fault", ""):
            code, speaker, message = fault.split(" ", 2)
            raise ElsewhereError(message, int(code), speaks=self.rank == int(speaker))

    def _out_of_touch(self, what: str) -> LostRankError:
        first_line = what.split("\n")[0]
        return self._missing(f"rank {self.rank}: cannot reach the others ({first_line})", speaker=self.rank)


@contextmanager
def join_ranks(request: StopRequest, *, device_type: str, timeout_s: float) -> Iterator[Ranks]:
    """Meet the other processes that torchrun has started, if it has; whatever ends this rank ends them with its code.

    Raises EnvironmentFault when torchrun's variables are wrong or the others cannot be reached.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":
        yield Ranks(request)
        return
    try:
        store, rank, world_size = next(rendezvous("env://", timeout=timedelta(seconds=timeout_s)))
        backend = "cpu:gloo,cuda:nccl" if device_type == "cuda" else "gloo"
        dist.init_process_group(
            backend, store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=timeout_s)
        )
        store.set(f"where/{rank}", f"process {os.getpid()} on {socket.gethostname()}")
    except (ValueError, KeyError, RuntimeError) as error:
        what = " ".join(str(error).split())[:200]
        raise EnvironmentFault(
            f"cannot meet the other ranks ({what})."
            " Start all of them with torchrun, on a free --master-port and with the same --nnodes and --nproc-per-node"
        ) from error
    ranks = Ranks(request, rank=rank, world_size=world_size, store=store, timeout_s=timeout_s)
    end = dist.destroy_process_group
    try:
        yield ranks
        ranks.part()
    except Exception as error:
        if device_type == "cuda":  # whose pending work would be waited for, although a rank that it needs may be gone
            end = dist.distributed_c10d._abort_process_group
        if not isinstance(error, TfmError):  # a bug; the others need not find out by themselves
            ranks.leave(EnvironmentFault(f"rank {rank}: {error!r}. Look at its own log"))
        else:
            ranks.leave(error)
        raise
    finally:
        with suppress(RuntimeError, AssertionError):  # it may have been closed to wake the others up
            end()
