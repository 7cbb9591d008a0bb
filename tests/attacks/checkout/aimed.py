"""Tricks that are made for one verb: what `check` walks, writes and holds known, alerts, and repositories of git for `diff`."""

from __future__ import annotations

import hashlib
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.attacks.checkout.hostile import DIFF, PACKAGE, RAN, TASK, UP, WALKS, Trick, modules, placed, project


def repository(folder: Path) -> Path:
    """Make a checkout a repository whose commit it is."""
    for words in (
        ("init", "-q", "--template="),
        ("add", "-A"),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"),
    ):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
    return folder


def stored(folder: Path, kind: str, data: bytes) -> bytes:
    """Put an object into a repository, whatever git would say of it; return its id."""
    whole = f"{kind} {len(data)}".encode() + b"\0" + data
    name = hashlib.sha1(whole, usedforsecurity=False)
    path = folder / ".git/objects" / name.hexdigest()[:2] / name.hexdigest()[2:]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zlib.compress(whole))
    return name.digest()


def committed(*names: str) -> Callable[[Path, Path], None]:
    """Make HEAD a commit of files with these names, as they are."""

    def play(folder: Path, own: Path) -> None:
        trees = []
        for name in names:
            made, mode = stored(folder, "blob", b"x\n"), b"100644"
            for part in reversed([name] if name.startswith("OUTSIDE") else name.split("/")):
                row = mode + b" " + part.replace("OUTSIDE", str(own)).encode() + b"\0" + made
                made, mode = stored(folder, "tree", row), b"40000"
            trees.append(row)
        tree = stored(folder, "tree", b"".join(trees))
        commit = stored(
            folder, "commit", f"tree {tree.hex()}\nauthor a <a> 0 +0000\ncommitter a <a> 0 +0000\n\nx\n".encode()
        )
        (folder / ".git/HEAD").write_text(f"{commit.hex()}\n")

    return play


def configured(url: str) -> Callable[[Path, Path], None]:
    """A configuration of git that names a script wherever one may be named, and an object that is missing."""

    def play(folder: Path, own: Path) -> None:
        script = folder / "evil.sh"
        script.write_text(f"#!/bin/sh\ntouch {own}/{RAN}\n")
        script.chmod(0o755)
        (folder / ".gitattributes").write_text("* filter=evil diff=evil\n")
        rows = (
            "[core]\nrepositoryFormatVersion = 1\nfsmonitor = SCRIPT\nsshCommand = SCRIPT\npager = SCRIPT\nhooksPath = .\n"
            "gitProxy = SCRIPT\neditor = SCRIPT\n[extensions]\npartialClone = origin\n[protocol]\nallow = always\n"
            f'[remote "origin"]\npromisor = true\nurl = {url}\nuploadpack = SCRIPT\nvcs = \n[credential]\nhelper = SCRIPT\n'
            '[filter "evil"]\nsmudge = SCRIPT\nclean = SCRIPT\nrequired = true\n[diff "evil"]\ntextconv = SCRIPT\ncommand = SCRIPT\n'
            "[diff]\nexternal = SCRIPT\n[pager]\nls-tree = SCRIPT\n[alias]\nls-tree = !SCRIPT\n"
        )
        with open(folder / ".git/config", "a") as file:
            file.write(rows.replace("vcs = \n", "").replace("SCRIPT", str(script)).replace("PLACE", str(folder)))
        data = TASK.encode()
        name = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
        (folder / ".git/objects" / name[:2] / name[2:]).unlink()

    return play


def aimed() -> Iterator[tuple[Trick, tuple[str, ...]]]:
    """Tricks that matter to one verb or two, each with it."""
    for place in ("stray.yaml", ".gitignore"):
        for kind in ("absolute job.yaml", "absolute missing", "chain job.yaml", "pipe"):
            yield from ((placed("walk", place, kind), verb) for verb in WALKS[1:3])
    for kind in ("absolute text", "absolute missing", "pipe"):
        yield from ((placed("baseline", "known.json", kind), verb) for verb in (("check",), WALKS[-1]))
        for place in ("build/alerts", "build/alerts/dashboard.json"):
            yield placed("alerts", place, kind), ("function", "alerts")
    for path in ("OUTSIDE/text", "../outside/text", "../outside/new/known.json"):
        trick = Trick(f"check.baseline {path}", project("baseline: known.json", f"baseline: {path}"))
        yield from ((trick, verb) for verb in (("check",), WALKS[-1]))
    for name in ("../../outside/text", "trainer_pkg/../../../outside/text", "OUTSIDE/text", ".git/config", "a\nb"):
        yield Trick(f"commit with {name!r}", committed(name)), DIFF
    yield Trick("commit with a file that is a folder", committed("a", "a/b")), DIFF
    yield Trick("commit whose project file is no text", committed("vertexrig.yaml")), DIFF
    for verb in (("package",), ("image", "cpu", "--set", "trainer.image=build"), DIFF, PACKAGE, UP):
        yield Trick("modules of others", modules), verb
    for url in ("ext::SCRIPT", "ssh://host.invalid/x", "PLACE"):
        yield Trick(f"configuration of git with {url}", configured(url)), DIFF
    for place in (".git", ".git/config", ".git/HEAD", ".git/objects"):
        yield from (
            (placed("git", place, kind), DIFF) for kind in ("absolute text", "absolute full", "absolute missing")
        )
