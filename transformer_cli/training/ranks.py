"""The processes that train together: one by itself, or those that torchrun has started.

Every rank holds the whole model. Updates communicate through collectives (gloo on CPUs, NCCL between GPUs). What one
rank does alone, like preparing data, reading a checkpoint or translating the dev set, the others wait for in torchrun's
key-value store, which has no timeout of a collective. The first rank composes the config, reads, writes and logs.

Why not `dist.monitored_barrier`: it exists for gloo alone; it is a collective of its own, so it reports nothing about a
rank that is lost inside another one; only rank 0 names the missing rank, not when that is rank 0 itself; and it does
not distinguish a rank that is gone from one that is late, which is waited for much longer.
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
from transformer_cli.plugins import RAISED
from transformer_cli.training.signals import StopRequest

BEAT_S = 0.5  # between two heartbeats of a rank
SILENCE_S = 4.0  # without a heartbeat, after which a rank is lost
GRACE_S = 20.0  # of the 30 s that torchrun gives between SIGTERM and SIGKILL


class Ranks:
    """This process among those that train together: collectives, messages, and which rank is lost."""

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
        self._n_rollbacks = 0
        self._store = store
        self._has_ended = threading.Event()
        self._heartbeat = threading.Thread(target=self._beat, name="tfm-heartbeat", daemon=True)
        if store is not None:
            self._heartbeat.start()

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def local_device(self, device: torch.device) -> torch.device:
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

    def synchronise(self, step: int, *, is_well: bool = True) -> bool:
        """Wait until every rank has come to `step`; from there on `stop_signal` is the same on all of them.

        Returns whether all are well.
        Raises LostRankError naming the rank that does not come, ElsewhereError for one that has met a fault.
        """
        self.stop_signal = self.request.signal
        if self._store is None:
            return is_well
        self._set(f"at/{self.rank}", str(step))
        flags = torch.tensor([self.stop_signal, not is_well])
        self._complete(lambda: [dist.all_reduce(flags, dist.ReduceOp.MAX, async_op=True)], step)
        self.stop_signal = int(flags[0])
        return not flags[1]

    def start_all_reduce(self, tensor: Tensor, step: int) -> dist.Work:
        """Start to replace `tensor`, on this rank's device, by its sum over the ranks. Raises as `synchronise` does."""
        try:
            work: dist.Work = dist.all_reduce(tensor, async_op=True)
        except RuntimeError as error:
            raise self.find_lost_rank(step, str(error)) from error
        return work

    def wait(self, works: Sequence[dist.Work], step: int, *, on_gpu: bool) -> None:
        """Wait for sums that have been started. Raises as `synchronise` does."""
        self._complete(lambda: works, step, on_gpu=on_gpu)

    def all_reduce_min(self, number: int) -> int:
        """The smallest of the numbers of all ranks. Raises as `synchronise` does."""
        if self._store is None:
            return number
        least = torch.tensor(number)
        self._complete(lambda: [dist.all_reduce(least, dist.ReduceOp.MIN, async_op=True)], 0)
        return int(least)

    def broadcast(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite the tensors with the first rank's."""
        for tensor in tensors if self._store is not None else ():
            self._complete(partial(self._start_broadcast, tensor), 0, on_gpu=tensor.is_cuda)

    def _start_broadcast(self, tensor: Tensor) -> list[dist.Work]:
        return [dist.broadcast(tensor, src=0, async_op=True)]

    def publish_and_wait(self, key: str, text: str | None) -> str:
        """The text that the first rank publishes under `key`; the others pass None and wait for it."""
        if text is None:
            return self.wait_for(key)
        self.publish(key, text)
        return text

    def publish(self, key: str, text: str) -> None:
        """Let the other ranks have what they `wait_for` under `key`."""
        if self._store is not None:
            self._set(self._shared(key), text)

    def wait_for(self, key: str, *, is_patient: bool = False) -> str:
        """The text that the first rank publishes under `key`, however long that takes.

        After a signal, wait for GRACE_S at most, or for the timeout of the ranks if `is_patient`.
        """
        return self._await(self._shared(key), grace_s=self.timeout_s if is_patient else GRACE_S)

    def go_back(self) -> None:
        """All ranks go back to an earlier step: what was published of the steps since is not what they wait for."""
        self._n_rollbacks += 1

    def _shared(self, key: str) -> str:
        return f"shared/{self._n_rollbacks}/{key}" if self._n_rollbacks else f"shared/{key}"

    def is_asked_to_stop(self) -> bool:
        """Whether this rank, or one that waits in `wait_for`, was asked to stop."""
        if self._store is None or self.request.signal:
            return self.request.signal != 0
        with suppress(RuntimeError):  # a store that cannot be reached is noticed at the next collective
            return self._read("stop", "") != ""
        return False

    def leave(self, error: TfmError) -> None:
        """Publish why this rank ends, and which rank reports it."""
        if self._store is not None and not isinstance(error, ElsewhereError):
            reporter = error.reporter if isinstance(error, LostRankError) else 0
            with suppress(RuntimeError):
                self._store.set("fault", f"{error.exit_code} {reporter} {error}")

    def shut_down(self) -> None:
        """The end of a run that went well. Without torchrun the first rank keeps the store: it leaves last."""
        if self._store is None:
            return
        with suppress(RuntimeError):
            self._store.set(f"left/{self.rank}", "")
            if self.is_first:
                all_ranks = [f"left/{rank}" for rank in range(self.world_size)]
                self._store.wait(all_ranks, timedelta(seconds=GRACE_S))

    def stop_heartbeat(self) -> None:
        """Stops the heartbeat before the process ends: Python aborts if its end finds a thread inside the store."""
        self._has_ended.set()
        if self._heartbeat.is_alive():
            self._heartbeat.join(timeout=SILENCE_S)

    def _set(self, key: str, text: str) -> None:
        assert self._store is not None
        try:
            self._store.set(key, text)
        except RuntimeError as error:
            raise self._unreachable(str(error)) from error

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
                raise self._unreachable(str(error)) from error
            if asked_at is not None and time.monotonic() - asked_at > grace_s:
                raise self._missing("rank 0 does not answer", reporter=1)
            time.sleep(0.05)

    def _complete(self, begin: Callable[[], Sequence[dist.Work]], step: int, *, on_gpu: bool = False) -> None:
        """Wait for collectives, and poll for a lost rank meanwhile, which a collective does not report on all others.

        Between GPUs it is the device that waits; `synchronise` has just found all ranks alive.
        """
        assert self._store is not None
        start = polled = time.monotonic()
        pause_s = 1e-5
        try:
            works = begin()
            while not on_gpu and not all(work.is_completed() for work in works):
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, 0.005)
                if time.monotonic() - polled > BEAT_S:
                    polled = time.monotonic()
                    if polled - start > self.timeout_s or self._store.check(["loss"]):
                        raise self.find_lost_rank(step, "no answer", waited_s=polled - start)
            for work in works:
                work.wait()
        except RuntimeError as error:
            raise self.find_lost_rank(step, str(error), waited_s=time.monotonic() - start) from error

    def find_lost_rank(self, step: int, what: str, *, waited_s: float = 0.0) -> TfmError:
        """The error that names the ranks without a heartbeat; if all have one, those that have not reached `step`."""
        assert self._store is not None
        try:
            self._store.set("loss", "")
            before = self._heartbeats()
            time.sleep(SILENCE_S)
            self._refuse_fault()
            after = self._heartbeats()
            others = [rank for rank in range(self.world_size) if rank != self.rank]
            silent = [rank for rank in others if before[rank] == after[rank]]
            late = [rank for rank in others if int(self._read(f"at/{rank}", "0")) < step]
            named = " and ".join(f"rank {rank} ({self._read(f'where/{rank}', 'unknown')})" for rank in silent or late)
        except ElsewhereError as elsewhere:
            return elsewhere
        except RuntimeError as error:
            return self._unreachable(str(error))
        if not named:
            return self._unreachable(what)
        is_gone = silent and waited_s < self.timeout_s
        did = f"does not answer, at step {step}" if is_gone else f"has not reached step {step} for {waited_s:.0f} s"
        return self._missing(f"{named} {did}", reporter=min({*range(self.world_size)} - {*(silent or late)}))

    def _missing(self, what: str, *, reporter: int) -> LostRankError:
        error = LostRankError(f"{what}. Look at its own log, and run the same command again")
        error.reporter, error.is_reporting = reporter, self.rank == reporter
        return error

    def _beat(self) -> None:
        assert self._store is not None
        with suppress(RuntimeError):  # the store is gone, and the other ranks with it
            for beat in itertools.count():
                self._store.set(f"pulse/{self.rank}", str(beat))
                if self._has_ended.wait(BEAT_S):
                    break

    def _heartbeats(self) -> list[str]:
        return [self._read(f"pulse/{rank}", "") for rank in range(self.world_size)]

    def _read(self, key: str, default: str) -> str:
        assert self._store is not None
        return str(self._store.get(key), "utf-8") if self._store.check([key]) else default

    def _refuse_fault(self) -> None:
        """Raise ElsewhereError if another rank has published why it left."""
        assert self._store is not None
        if fault := self._read("fault", ""):
            code, reporter, message = fault.split(" ", 2)
            raise ElsewhereError(message, int(code), is_reporting=self.rank == int(reporter))

    def _unreachable(self, what: str) -> LostRankError:
        first_line = what.split("\n")[0]
        return self._missing(f"rank {self.rank}: cannot reach the others ({first_line})", reporter=self.rank)


@contextmanager
def join_ranks(request: StopRequest, *, device_type: str, timeout_s: float) -> Iterator[Ranks]:
    """Join the other processes that torchrun has started, if it has; whatever ends this rank ends them with its code.

    Raises EnvironmentFault when torchrun's variables are wrong or the others cannot be reached.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":
        yield Ranks(request)
        return
    if device_type == "mps":
        raise EnvironmentFault(
            "device=mps: several ranks cannot share it. Start one without torchrun, or use device=cpu"
        )
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
        ranks.shut_down()
    except RAISED as error:
        if device_type == "cuda":  # whose pending work would be waited for, although a rank that it needs may be gone
            end = dist.distributed_c10d._abort_process_group
        if not isinstance(error, TfmError):  # a bug; the other ranks need not wait for a timeout
            ranks.leave(EnvironmentFault(f"rank {rank}: {error!r}. Look at its own log"))
        else:
            ranks.leave(error)
        raise
    finally:
        ranks.stop_heartbeat()
        with suppress(RuntimeError, AssertionError):  # it may have been closed to wake the others
            end()
