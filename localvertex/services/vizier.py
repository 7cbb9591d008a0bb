"""VizierService: studies whose trials a client runs itself, over the engine that tuning jobs use."""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from localvertex.http import ApiError, Json, invalid, not_found, precondition
from localvertex.jobs import resources
from localvertex.jobs.listing import answer, page_size, portion
from localvertex.jobs.resources import STUDIES
from localvertex.jobs.store import ResourceStore, StoredResource
from localvertex.jobs.studies import new_engine
from localvertex.jobs.study_engine import StudyEngine, StudyExhausted
from localvertex.jobs.validation import found_errors, whole_numbers
from localvertex.services.collection import Collection, Kind
from localvertex.services.router import PACKAGE, Done, Method, exists
from vertexrig import spec
from vertexrig.errors import ConfigError
from vertexrig.finding import Severity
from vertexrig.spec.api_names import snake
from vertexrig.spec.objective import dominates
from vertexrig.spec.trial import Measurement, Trial, TrialState
from vertexrig.times import parse, rfc3339, seconds_since_1970

SERVICE = f"{PACKAGE}.VizierService"
MOST_SUGGESTIONS = 1000
_LARGEST_PAGE = 1000
_ENGINES = 8
"""Studies whose engines are kept."""


class Vizier:
    """The studies of a local Vertex's Vizier."""

    def __init__(self, store: ResourceStore, seed: int) -> None:
        self.store, self.seed = store, seed
        self.studies = Collection(store, Kind(STUDIES, "Study", numbered="The study ID must be a number."))
        # With the records of trials; nothing else writes trials of these studies.
        self._engines: dict[str, tuple[StudyEngine, dict[str, Json]]] = {}
        self._lock = threading.RLock()  # suggestions depend on the trials made, so calls of one server take turns

    def table(self) -> dict[str, Method]:
        return {
            "CreateStudy": self.create, "GetStudy": self.studies.get,
            "ListStudies": self.studies.list, "DeleteStudy": self.delete, "LookupStudy": self.lookup,
            "SuggestTrials": self.suggest, "CreateTrial": self.create_trial, "GetTrial": self.get_trial,
            "ListTrials": self.list_trials, "AddTrialMeasurement": self.measure, "CompleteTrial": self.complete,
            "DeleteTrial": self.delete_trial, "StopTrial": self.stop,
            "CheckTrialEarlyStoppingState": self.check_stopping, "ListOptimalTrials": self.optimal,
        }  # fmt: skip

    # studies

    def create(self, request: Json) -> Json:
        """CreateStudy: 400 for what cannot be searched, 409 for a display name that another study has."""
        parent, study = request["parent"], request.get("study") or {}
        name = str(study.get("displayName", ""))
        if not name:
            raise invalid("Study display_name is required.")
        canonical = _study_spec(study.get("studySpec") or {})
        new_engine(canonical, "study_spec")
        with self._lock:
            if self._named(parent, name) is not None:
                raise exists(f"{parent}/{STUDIES} with the display name {name!r}")
            fields = {"displayName": name, "studySpec": _spec_shown(study.get("studySpec") or {}), "state": "ACTIVE"}
            id_ = str(secrets.randbelow(9 * 10**12) + 10**12)  # 13 digits, as recorded
            return self.studies.add(parent, fields, id_, {"spec": canonical, "last": 0})

    def delete(self, request: Json) -> Json:
        self.studies.delete(request)
        self._engines.pop(str(request["name"]), None)
        return {}

    def lookup(self, request: Json) -> Json:
        """LookupStudy: by display name; without such a study 500, as the service answers (alchemy, tests of 2026)."""
        found = self._named(request["parent"], str(request.get("displayName", "")))
        if found is None:
            raise ApiError(500, "There was an issue when sending 'LookupStudyRequest'.")
        return found

    def _named(self, parent: str, name: str) -> Json | None:
        every = self.store.listed(STUDIES, parent)
        return next((one.body for one in every if one.body.get("displayName") == name), None)

    # trials

    def suggest(self, request: Json) -> Done:
        """SuggestTrials: first what the client has not finished, then trials that wait, then new ones."""
        name, count = request["parent"], int(request.get("suggestionCount", 0))
        client = str(request.get("clientId", ""))
        # The SDK's `Study.suggest` sends the client id "" unless a worker is named.
        if not 1 <= count <= MOST_SUGGESTIONS:
            raise invalid(f"SuggestTrials needs a suggestion_count of 1 to {MOST_SUGGESTIONS}.")
        with self._lock:
            stored = self.studies.stored(name)
            started = resources.now()
            engine, records = self._engine(stored)
            # Of 100,000 trials hardly one is open.
            waiting = [records[one] for one in engine.open]
            own = [one for one in waiting if one["state"] == "ACTIVE" and one.get("clientId", "") == client][:count]
            try:
                # Together: each transaction waits for the disk.
                with self.store.database.transaction():
                    own += self._taken(stored, waiting, client, count - len(own))
                    exhausted = self._fill(stored, engine, own, request, count)
            except BaseException:
                self._engines.pop(name, None)  # it is ahead of the stored trials
                raise
            response = {
                "trials": [_shown(one) for one in own],
                "startTime": started,
                "endTime": resources.now(),
                "studyState": "INACTIVE" if exhausted and not own else "ACTIVE",
            }
        details = {"clientId": client} if client else {}
        return Done(
            resources.place_of(name),
            "SuggestTrialsMetadata",
            "SuggestTrialsResponse",
            response,
            name,
            details=details,
            id=f"{resources.last_part(name)}__{self._counted(name, 'suggested')}",
        )

    def _taken(self, stored: StoredResource, records: Sequence[Json], client: str, count: int) -> list[Json]:
        """Return trials that a client requested itself, given to this one."""
        waiting = [one for one in records if one["state"] == "REQUESTED"][: max(count, 0)]
        fields = {"state": "ACTIVE", "clientId": client, "startTime": resources.now()}
        return [self._save(stored.name, {**record, **fields}) for record in waiting]

    def _fill(self, stored: StoredResource, engine: StudyEngine, own: list[Json], request: Json, count: int) -> bool:
        """Add new trials to `own` until there are `count`; returns whether the search space has no more.

        The new trials take turns with the request's contexts.
        """
        client, contexts = str(request.get("clientId", "")), request.get("contexts") or [{}]
        while len(own) < count:
            number = self._next(stored.name)
            try:
                # Asked for each new trial: one may have been the last of maxNumTrials.
                if engine.done():
                    return True
                engine.suggest(number, contexts[len(own) % len(contexts)].get("parameters", ()))
            except StudyExhausted:
                return True
            except ConfigError as error:
                raise invalid(f"Invalid context: {error}.") from None
            trial = engine.trials[number]
            trial.name = f"{stored.name}/trials/{number}"
            own.append(self._save(stored.name, {**trial.record(), "clientId": client}))
        return False

    def create_trial(self, request: Json) -> Json:
        """CreateTrial: one with the client's own parameters, in the client's state; with a final measurement it has ended."""
        name, given = request["parent"], request.get("trial") or {}
        state = str(given.get("state", "STATE_UNSPECIFIED"))
        if state == "STATE_UNSPECIFIED":
            raise invalid("Can not add trial with status: UNKNOWN")  # alchemy, provider of trials
        final = given.get("finalMeasurement")
        if state == "SUCCEEDED" and not final:
            raise invalid("A trial in state SUCCEEDED needs a final_measurement.")
        with self._lock:
            stored = self.studies.stored(name)
            parameters = [dict(row) for row in given.get("parameters", ())]
            unnamed = any("parameterId" not in row for row in parameters)
            if unnamed or self._engine(stored)[0].space.read(parameters) is None:
                raise invalid("The trial's parameters are not a point of the study's search space.")
            number = self._next(name)
            trial = Trial(number, parameters=whole_numbers(parameters), name=f"{name}/trials/{number}")
            at = _now()
            if final or state != "REQUESTED":
                trial.move(TrialState.ACTIVE, at=at)
            if final:
                trial.final_measurement = _measurement(final)
                trial.move(TrialState.SUCCEEDED, at=at)
            elif state not in ("REQUESTED", "ACTIVE"):
                trial.move(TrialState(state), at=at)
            kept = {"clientId": given["clientId"]} if given.get("clientId") else {}
            return _shown(self._save(name, {**trial.record(), **kept}))

    def get_trial(self, request: Json) -> Json:
        return _shown(self._record(request["name"]))

    def list_trials(self, request: Json) -> Json:
        """ListTrials, the newest first (recording of 2025-04-11)."""
        size = page_size(request, _LARGEST_PAGE, _LARGEST_PAGE)
        with self._lock:
            records = list(self._engine(self.studies.stored(request["parent"]))[1].values())[::-1]
        found, following = portion(records, size, str(request.get("pageToken", "")))
        return answer("trials", [_shown(one) for one in found], following)

    def measure(self, request: Json) -> Json:
        """AddTrialMeasurement."""
        with self._lock:
            trial, record = self._running(request["trialName"])
            given = request.get("measurement") or {}
            trial.add([_measurement(given)])
            return _shown(self._save(_study_of(trial.name), {**record, **trial.record()}))

    def complete(self, request: Json) -> Json:
        """CompleteTrial: with its final measurement, else the one that counts among those added; or as infeasible."""
        with self._lock:
            trial, record = self._running(request["name"])
            stored = self.studies.stored(_study_of(trial.name))
            engine, _ = self._engine(stored)
            final = _measurement(request["finalMeasurement"]) if request.get("finalMeasurement") else None
            infeasible = str(request.get("infeasibleReason", "")) or "The client gave no reason."
            if request.get("trialInfeasible"):
                ended = engine.complete(trial.id, infeasible=infeasible)
            elif final is None and engine.objective.final(engine.trials[trial.id].measurements) is None:
                raise precondition(
                    f"{trial.name} has no measurement of every metric; add one, or give final_measurement."
                )
            else:
                ended = engine.complete(trial.id, final)
            return _shown(self._save(stored.name, {**record, **ended.record()}))

    def delete_trial(self, request: Json) -> Json:
        """DeleteTrial: 400, not 404, for a trial that is not there (the service's answer to a client's test of 2024)."""
        with self._lock:
            self.studies.stored(_study_of(request["name"]))
            try:
                record = self._record(request["name"])
            except ApiError as error:
                raise invalid(error.message) from None
            self.store.remove_trial(_study_of(request["name"]), str(record["id"]))
            self._engines.pop(_study_of(request["name"]), None)
        return {}

    def stop(self, request: Json) -> Json:
        """StopTrial: its client is to end it."""
        with self._lock:
            trial, record = self._running(request["name"])
            if trial.state is TrialState.ACTIVE:
                trial.move(TrialState.STOPPING, at=_now())
            return _shown(self._save(_study_of(trial.name), {**record, **trial.record()}))

    def check_stopping(self, request: Json) -> Done:
        """CheckTrialEarlyStoppingState: by the study's automated stopping rule, and its end."""
        name = str(request["trialName"])
        with self._lock:
            record = self._record(name)
            engine, _ = self._engine(self.studies.stored(_study_of(name)))
            trial = engine.trials[str(record["id"])]
            stopped = not trial.state.ended and (engine.should_stop(trial.id) or engine.interrupted() is not None)
            if stopped and trial.state is TrialState.ACTIVE:
                trial.move(TrialState.STOPPING, at=_now())
                self._save(_study_of(name), {**record, **trial.record()})
        kind = "CheckTrialEarlyStoppingStateMetatdata"  # the API's own spelling
        answered, details = {"shouldStop": stopped}, {"study": _study_of(name), "trial": name}
        return Done(
            resources.place_of(name), kind, "CheckTrialEarlyStoppingStateResponse", answered, name, details=details
        )

    def optimal(self, request: Json) -> Json:
        """ListOptimalTrials: those that no other trial dominates."""
        stored = self.studies.stored(request["parent"])
        with self._lock:
            engine, records = self._engine(stored)
            every = list(records.values())
        signs = [goal.sign for goal in engine.objective.goals]
        scored: list[tuple[Json, list[float]]] = []
        for record in every:
            values = engine.objective.values(engine.trials[str(record["id"])].final_measurement)
            if record["state"] == "SUCCEEDED" and values is not None:
                scored.append((record, [sign * value for sign, value in zip(signs, values, strict=True)]))
        best = [record for record, own in scored if not any(dominates(other, own) for _, other in scored)]
        return {"optimalTrials": [_shown(one) for one in best]}

    # stored trials

    def _record(self, name: str) -> Json:
        study, _, number = name.rpartition("/trials/")
        with self._lock:
            found = self._engine(self.studies.stored(study))[1].get(number)
        if found is None:
            raise not_found("The Trial does not exist.")
        return found

    def _running(self, name: str) -> tuple[Trial, Json]:
        record = self._record(name)
        trial = Trial.from_dict(record)
        if trial.state not in (TrialState.ACTIVE, TrialState.STOPPING):
            raise precondition(f"{name} is in state {trial.state.value}, not ACTIVE.")
        return trial, record

    def _save(self, study: str, record: Json) -> Json:
        try:
            self.store.save_trial(study, record)
        except BaseException:
            self._engines.pop(study, None)  # it is ahead of what is kept
            raise
        engine, records = self._engines[study]
        engine.add(Trial.from_dict(record))
        records[str(record["id"])] = record
        return record

    def _next(self, study: str) -> str:
        """Return the id of a new trial; none is used twice, also where the last one was deleted."""
        return str(self._counted(study, "last"))

    def _counted(self, study: str, counter: str) -> int:
        """Return a hidden counter of the study, which is one more for each call."""
        made: list[int] = []

        def edit(_: Json, hidden: Json) -> None:
            hidden[counter] = hidden.get(counter, 0) + 1
            made.append(hidden[counter])

        self.store.change(study, edit)
        return made[0]

    def _engine(self, stored: StoredResource) -> tuple[StudyEngine, dict[str, Json]]:
        """Return the study's engine and the records of its trials by id: those of the last call, or read anew."""
        engine, records = self._engines.pop(stored.name, (None, {}))
        if engine is None:
            created = seconds_since_1970(stored.body["createTime"])
            trials = self.store.trials(stored.name)
            engine = StudyEngine(stored.hidden["spec"], seed=self.seed, trials=trials, created=created)
            records = {str(one["id"]): one for one in trials}
        self._engines[stored.name] = engine, records
        while len(self._engines) > _ENGINES:
            del self._engines[next(iter(self._engines))]
        return engine, records


def _shown(record: Mapping[str, Any]) -> Json:
    """Return a trial as Vizier shows it: without an id, in whole seconds, and without elapsed times that were not sent."""
    shown = {key: _sent(value) for key, value in record.items() if key not in ("failed", "id")}
    times_ = {key: rfc3339(parse(shown[key]), 0) for key in ("startTime", "endTime") if shown.get(key)}
    return {**shown, **times_}


def _sent(value: Any) -> Any:
    """Return measurements, or another field of a trial, without an elapsed time of zero."""
    if isinstance(value, list):
        return [_sent(one) for one in value]
    if isinstance(value, dict) and value.get("elapsedDuration") == "0s":
        return {key: one for key, one in value.items() if key != "elapsedDuration"}
    return value


def _now() -> float:
    return seconds_since_1970(resources.now())


def _study_of(trial: str) -> str:
    return trial.rpartition("/trials/")[0]


def _study_spec(given: Json) -> Json:
    """Return a StudySpec read as a tuning job's is; 400 with what is wrong in it."""
    document = spec.from_data(whole_numbers({"studySpec": given}), kind="HyperparameterTuningJob")
    wrong = [one for one in document.findings if one.severity is Severity.ERROR and one.path.startswith("studySpec")]
    if wrong:
        raise found_errors([(snake(one.path), one.message) for one in wrong])
    return dict(document.data.get("studySpec") or {})


def _spec_shown(given: Json) -> Json:
    """Return a StudySpec as the service shows it: with the limits of the study, if only empty ones, and without the usual selection."""
    usual = {"measurementSelectionType": "BEST_MEASUREMENT"}.items()
    return {"studyStoppingConfig": {}, **{key: value for key, value in given.items() if (key, value) not in usual}}


def _measurement(given: Mapping[str, Any]) -> Measurement:
    """Return a measurement as sent; 400 for a metric without an id or with a value that is not finite."""
    for metric in given.get("metrics", ()):
        if not metric.get("metricId") or not math.isfinite(float(metric.get("value", 0.0))):
            raise invalid(
                f"Invalid measurement: each metric needs metric_id and a finite value, not {str(metric)[:100]}."
            )
    return Measurement.from_dict(given)
