"""The small process that starts programs, waits for them, and ends what they leave behind.

Run as a file, ``python -I -S starter.py``, it reads requests and answers each: eight bytes of length, then a dictionary
by ``marshal``. It imports as little as it can and nothing of the engine, because the kernel counts a program's peak
memory from the moment at which it is forked, and so never below what was copied from the process that forks: a rank
with PyTorch would hide every smaller program, and ``typing`` and ``json`` alone are 2.5 MiB. It is the subreaper
(prctl(2)) of whatever its programs start: a daemon that has left its parent, its group and its session becomes this
process's child, is seen, and is ended.

A request: ``argv`` (its first word is a path), ``environment``, ``folder``, ``limit_s``, ``input`` (a text for the
standard input, or null). An answer: ``failed`` where nothing could be started, else ``start_ns`` and ``wall_ns`` on the
monotonic clock, ``code`` (below 0: the signal), ``timed_out``, ``cpu_s``, ``peak_bytes`` with ``floor_bytes`` (the
least that can be seen), ``left`` (names of processes that outlived the program), ``output`` and ``errors`` (the first
and the last of what was printed), and ``printed_bytes``.
"""

from __future__ import annotations

import marshal
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any, NoReturn
else:
    import _signal as signal  # what the other wraps in enumerations, which take more than a megabyte

HEAD_BYTES, TAIL_BYTES = 256 << 10, 768 << 10
"""How much is kept of the beginning and of the end of what a program prints to one stream."""
READ_BYTES = 1 << 20
DRAIN_S = 0.5
"""Longest time in which what is left in the pipes is read after a program's end: a process that it left may go on."""
GRACE_S = 0.25
"""Time in which processes that outlive their program may end by themselves, such as the trackers of Python's pools."""
END_S = 5.0
PREPARED = "prepared"
_SET_CHILD_SUBREAPER, _SET_PDEATHSIG = 36, 1
_FAILED_EXIT_CODE = 127

_now_ns = time.monotonic_ns


class Kept:
    """The first and the last bytes of a stream, and how many there were."""

    def __init__(self) -> None:
        self.size = 0
        self._head, self._tail = bytearray(), bytearray()

    def add(self, data: bytes) -> None:
        """Take what was read."""
        self.size += len(data)
        room = HEAD_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]

    def text(self) -> str:
        """Return what was kept; a line says where something is left out."""
        tail = self._tail[-TAIL_BYTES:]
        left_out = self.size - len(self._head) - len(tail)
        between = f"\n[… {left_out} bytes left out …]\n".encode() if left_out else b""
        return (bytes(self._head) + between + bytes(tail)).decode("utf-8", "replace")


class Starter:
    """Runs one program after another."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._kept: dict[int, Kept] = {}
        self._woken, woken = os.pipe()
        for end in (self._woken, woken):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        self._poll.register(self._woken, select.POLLIN)

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run a program to its end or to its limit, and everything that it has started with it."""
        output, errors = Kept(), Kept()
        (output_end, output_in), (errors_end, errors_in) = os.pipe(), os.pipe()
        for end, kept in ((output_end, output), (errors_end, errors)):
            os.set_blocking(end, False)
            self._poll.register(end, select.POLLIN)
            self._kept[end] = kept
        streams = (_input(request["input"]), output_in, errors_in)
        floor_bytes = _floor_bytes(request, streams)
        start_ns = _now_ns()
        pid, failed, _ = _start(request, streams)
        for end in streams:
            os.close(end)
        try:
            if pid is None:
                return {"failed": failed}
            ended = self._wait(pid, start_ns, float(request["limit_s"]))
            self._drain()
            left, more = self._outlived()
        finally:
            for end in list(self._kept):
                self._close(end)
        usages = [ended.pop("usage"), *more]
        return {
            **ended,
            "start_ns": start_ns,
            "cpu_s": sum(u.ru_utime + u.ru_stime for u in usages),
            "peak_bytes": max(u.ru_maxrss for u in usages) << 10,
            "floor_bytes": floor_bytes,
            "left": left,
            "output": output.text(),
            "errors": errors.text(),
            "printed_bytes": output.size + errors.size,
        }

    def _wait(self, pid: int, start_ns: int, limit_s: float) -> dict[str, Any]:
        """Wait until the program ends; kill it where it takes longer than the limit."""
        timed_out = False
        while True:
            found, status, usage = os.wait4(pid, 0 if timed_out else os.WNOHANG)
            now_ns = _now_ns()
            if found:
                code = os.waitstatus_to_exitcode(status)
                return {"wall_ns": now_ns - start_ns, "code": code, "timed_out": timed_out, "usage": usage}
            left_s = limit_s - (now_ns - start_ns) * 1e-9
            if left_s <= 0:
                timed_out = True
                for each in (pid, *_descendants()):
                    _kill(each)
                continue
            ready = self._ready(left_s)
            if self._woken in ready:
                _read(self._woken)
                continue  # the clock is read before the pipes are
            self._take(ready)

    def _ready(self, seconds: float) -> list[int]:
        """Wait until there is something to read, or a process has ended; return where."""
        return [end for end, _ in self._poll.poll(seconds * 1e3)]

    def _close(self, end: int) -> None:
        self._poll.unregister(end)
        del self._kept[end]
        os.close(end)

    def _take(self, ready: list[int]) -> bool:
        """Keep what pipes hold; tell whether there was anything."""
        some = False
        for end in ready:
            data = _read(end)
            if end == self._woken or data is None:
                continue
            if data == b"":
                self._close(end)
            else:
                self._kept[end].add(data)
                some = True
        return some

    def _drain(self) -> None:
        until_ns = _now_ns() + int(DRAIN_S * 1e9)
        while self._take(self._ready(0)) and _now_ns() < until_ns:
            pass

    def _outlived(self) -> tuple[list[str], list[Any]]:
        """Wait a little for what outlived the program, then end it.

        Returns:
            The names of processes that had to be ended, and what the kernel counted for each that is gone.
        """
        usages: list[Any] = []
        until_ns = _now_ns() + int(GRACE_S * 1e9)
        while not _reap(usages):
            left_s = (until_ns - _now_ns()) * 1e-9
            if left_s <= 0:
                names = sorted(filter(None, map(_name, _descendants())))
                end_all(usages)
                return names or ["a process that could not be named"], usages
            self._take(self._ready(left_s))
        return [], usages


def _start(request: dict[str, Any], streams: tuple[int, ...]) -> tuple[int | None, str | None, Any]:
    """Start a program in a process group of its own.

    Returns:
        Its process; or why there is none, and what the kernel counted until then.

    A copy is forked, and memory is not shared until the program begins (vfork): that would count this process's whole
    memory as the program's.
    """
    told, telling = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(request, streams, telling)
    os.close(telling)
    why = b""
    while part := os.read(told, 4096):  # ends when the program begins
        why += part
    os.close(told)
    if not why:
        return pid, None, None
    return None, why.decode("utf-8", "replace"), os.wait4(pid, 0)[2]


def _become(request: dict[str, Any], streams: tuple[int, ...], telling: int) -> NoReturn:
    what = f"the folder {request['folder']}"
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(request["folder"])
        what = str(request["argv"][0])
        for target, stream in enumerate(streams):
            os.dup2(stream, target)
        os.execve(request["argv"][0], request["argv"], request["environment"])
    except (OSError, ValueError) as error:
        os.write(telling, f"{what}: {getattr(error, 'strerror', None) or error}".encode())
    finally:
        os._exit(_FAILED_EXIT_CODE)


def _input(text: str | None) -> int:
    """Return a descriptor from which a program reads a text, or nothing."""
    if text is None:
        return os.open(os.devnull, os.O_RDONLY)
    file = os.memfd_create("input")
    _write(file, text.encode("utf-8", "replace"))
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _floor_bytes(request: dict[str, Any], streams: tuple[int, ...]) -> int:
    """Return the memory of a process that does all that comes before its program, which it then does not find."""
    return int(_start({**request, "argv": [""]}, streams)[2].ru_maxrss) << 10


def _write(end: int, data: bytes) -> None:
    while data:
        data = data[os.write(end, data) :]


def _exactly(size: int) -> bytes:
    """Read so many bytes of the standard input; fewer at its end."""
    data = b""
    while len(data) < size and (part := os.read(0, size - len(data))):
        data += part
    return data


def _read(end: int) -> bytes | None:
    """Return what a pipe holds, None where it is empty, and nothing at its end."""
    try:
        return os.read(end, READ_BYTES)
    except BlockingIOError:
        return None


def _reap(usages: list[Any]) -> bool:
    """Collect processes that have ended; tell whether none is left."""
    while True:
        try:
            found, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if not found:
            return False
        usages.append(usage)


def _descendants() -> list[int]:
    """Return all processes below this one, whatever group or session they are in."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - pathlib's import takes memory
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                parent = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    left = [os.getpid()]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


def _name(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read().strip() or None
    except OSError:
        return None


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return


def end_all(usages: list[Any] | None = None) -> None:
    """Kill every process below this one, again and again until there is none: some may be starting others."""
    until_ns = _now_ns() + int(END_S * 1e9)
    while not _reap([] if usages is None else usages) and _now_ns() < until_ns:
        for pid in _descendants():
            _kill(pid)
        time.sleep(0.001)


def _asked_to_end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _prepare() -> None:
    """Become a subreaper that ends with the process that asks, and begin anew without what that took.

    Both outlast execve(2), which ``ctypes`` and its memory do not.
    """
    import ctypes  # noqa: PLC0415 - a third of a megabyte

    parent = os.getppid()
    library = ctypes.CDLL(None)
    library.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    library.prctl(_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(0)
    os.execv(sys.executable, [*sys.orig_argv, PREPARED])


def main() -> int:
    """Answer requests until there are no more, or until the process that asks is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.argv[1:] != [PREPARED]:
        _prepare()
    signal.signal(signal.SIGTERM, _asked_to_end)
    starter = Starter()
    try:
        while size := int.from_bytes(_exactly(8), "little"):
            answer = marshal.dumps(starter.run(marshal.loads(_exactly(size))))
            for data in (len(answer).to_bytes(8, "little"), answer):
                _write(1, data)
    finally:
        end_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
