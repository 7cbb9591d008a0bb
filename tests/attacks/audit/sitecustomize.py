"""Writes what a process, and each that it starts, does to files, programs and hosts into the file that AUDIT_LOG names, a JSON list per line.

A process that is forked with another AUDIT_LOG writes into that one.
"""

import json
import os
import sys

_LOGS: dict[str, int] = {}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {"os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.link", "os.truncate", "shutil.rmtree"}


def _note(kind: str, what: object) -> None:
    name = os.environ["AUDIT_LOG"]
    if name not in _LOGS:
        _LOGS[name] = -1  # to open it is an event, too
        _LOGS[name] = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    if _LOGS[name] >= 0:
        text = os.fsdecode(what) if isinstance(what, bytes) else str(what)
        os.write(_LOGS[name], (json.dumps([kind, text]) + "\n").encode())


def _hook(event: str, args: tuple) -> None:  # type: ignore[type-arg]
    # A bare name may be below an open folder, which the event does not say; the rename that follows it does.
    if event == "open" and isinstance(args[0], (str, bytes)) and os.path.dirname(args[0]):
        mode, flags = args[1] or "", args[2] or 0
        writes = any(one in mode for one in "wax+") or bool(flags & _WRITES)
        _note("write" if writes else "read", os.path.abspath(args[0]))
    elif event in _CHANGES and isinstance(args[0], (str, bytes, os.PathLike)):
        target = args[1] if event in ("os.rename", "os.symlink", "os.link") else args[0]
        folder = {"os.rename": 3, "os.mkdir": 2, "os.remove": 1, "os.rmdir": 1, "os.symlink": 2, "os.link": 3}.get(
            event
        )
        descriptor = args[folder] if folder else -1
        base = os.readlink(f"/proc/self/fd/{descriptor}") if descriptor >= 0 else ""
        _note("write", os.path.abspath(os.path.join(base, os.fspath(target))))
    elif event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system"):
        _note("run", args[0])
    elif event == "socket.connect" and isinstance(args[1], tuple):
        _note("send", f"{args[1][0]}:{args[1][1]}")
    elif event == "exec" and getattr(args[0], "co_filename", "").startswith("/"):
        _note("exec", args[0].co_filename)


sys.addaudithook(_hook)
