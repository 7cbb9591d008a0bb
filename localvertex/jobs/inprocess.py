"""The jobs and studies of a local Vertex in this process, without its ports and APIs: what a rehearsal runs on."""

from __future__ import annotations

import fcntl
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from localvertex.http import Json
from localvertex.jobs import resources
from localvertex.jobs.manager import Jobs, Watcher
from localvertex.jobs.resources import TUNING_JOBS
from localvertex.jobs.settings import Settings
from localvertex.jobs.store import ResourceStore
from localvertex.jobs.studies import Studies
from localvertex.runner.result import new_job_id
from vertexrig.files import is_held, locked

_LOOK_EVERY_S = 0.1
_LOCK = "lock"
"""File in the folder of a rehearsal, whose lock its process holds."""


class LocalJobs:
    """A context that runs jobs and studies, and calls the watcher from several threads; whatever still runs at its end is stopped."""

    def __init__(self, settings: Settings, watcher: Watcher) -> None:
        self._changed, self._raised = threading.Event(), list[Exception]()
        # Not in a server's store: a server would continue these jobs.
        self._folder, self._lock = _new_folder(settings.root / "rehearsals")
        self._store = ResourceStore(self._folder)
        self._parent = resources.parent_name(settings.options.project, settings.options.region)
        self._jobs = Jobs(
            settings,
            self._store,
            keep=lambda name, lines: None,  # a rehearsal serves no Logging API; each job writes its own log files
            watcher=Watcher(
                line=self._guarded(watcher.line),
                state=self._guarded(watcher.state, is_change=True),
                trial=self._guarded(watcher.trial, is_change=True),
                result=self._guarded(watcher.result),
            ),
        )
        self._studies = Studies(self._jobs)

    def __enter__(self) -> LocalJobs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Studies first, as with a server: one that goes on would start further jobs.
        self._studies.close()
        self._jobs.close()
        self._store.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.close()

    def _guarded(self, call: Callable[..., None], *, is_change: bool = False) -> Callable[..., None]:
        """Wrap a watcher function: its exception is kept for `follow` to raise, because in the job's thread it would fail the job.
        With `is_change`, also wake `follow`.
        """

        def guarded(*what: Any) -> None:
            try:
                call(*what)
            except Exception as error:
                self._raised.append(error)
            if is_change:
                self._changed.set()

        return guarded

    def add(self, beside_spec: Mapping[str, Any], data: Mapping[str, Any]) -> str:
        """Start a job or a study, and return its resource name.

        Args:
            beside_spec: Its fields beside the spec: displayName and labels.
            data: Canonical: the CustomJobSpec of a job, or the HyperparameterTuningJob of a study.

        Raises:
            ApiError: 400, if the study cannot be searched.
        """
        if "studySpec" in data:
            return str(self._studies.add(self._parent, {**data, **beside_spec})["name"])
        return str(self._jobs.add(self._parent, beside_spec, data)["name"])

    def get(self, name: str) -> Json:
        """Return a job as the API would show it, or a study with all that is known of its trials."""
        return self._studies.whole(name) if f"/{TUNING_JOBS}/" in name else self._jobs.get(name)

    def follow(
        self,
        name: str,
        changed: Callable[[Json], None] = lambda body: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Json:
        """Wait for the end of a job or study, and return it.

        Args:
            name: Its resource name.
            changed: Called with it when it has changed, in this thread; not for its last state, with which `follow` returns.
            cancelled: Whether it is to be cancelled; asked about ten times a second.
        """
        asked = False
        while True:
            has_changed = self._changed.wait(_LOOK_EVERY_S)
            self._changed.clear()
            if self._raised:
                raise self._raised[0]
            if cancelled() and not asked:
                asked = True  # once: cancelling again would write the state each time
                (self._studies if f"/{TUNING_JOBS}/" in name else self._jobs).cancel(name)
            stored = self._store.get(name)
            if stored is not None and resources.has_ended(stored.body):
                return self.get(name)
            if has_changed:
                changed(self.get(name))


def _new_folder(folder: Path) -> tuple[Path, IO[str]]:
    """Make a folder below `folder`, hold its lock, and remove the folders of processes that were killed."""
    with locked(folder):  # otherwise another process could remove the new folder before its lock is held
        for one in folder.iterdir():
            if not is_held(one / _LOCK):
                shutil.rmtree(one, ignore_errors=True)
        made = folder / new_job_id()
        made.mkdir()
        lock = (made / _LOCK).open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
    return made, lock
