"""The project file: typed, with errors that name the key, the value, the line and the choices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tools import examples
from vertexrig.errors import ConfigError, UsageError, VertexrigError
from vertexrig.project import config

FILE = Path("vertexrig.yaml")
BASE = """
project: p
bucket: gs://b-b
jobs:
  cpu: {topology: cpu, machine_type: n1-standard-4, args: {epochs: 20, flag: null}, labels: {a: b}}
sweeps:
  sweep:
    job: cpu
    max_trial_count: 20
    study:
      metrics: {accuracy: MAXIMIZE}
      parameters: {lr: {double_value_spec: {min_value: 1e-3, max_value: 1}}}
"""


def load(text: str = BASE, *overrides: str, target: str | None = None, **environment: str) -> config.Loaded:
    return config.loads(text, file=FILE, overrides=overrides, target=target, environ=environment)


def test_a_project_is_typed() -> None:
    """Values arrive with the types of their fields, and numbers that gcloud reads as numbers are numbers here."""
    project = load().project
    assert project.jobs["cpu"].args == {"epochs": 20, "flag": None}
    study = project.sweeps["sweep"].study
    assert study is not None and study.parameters["lr"].double_value_spec is not None
    assert study.parameters["lr"].double_value_spec.min_value == 0.001


WRONG = [
    ("projct: p", r"vertexrig.yaml:1: projct: .*Did you mean 'project'\?"),
    ("project: p\njobs:\n  c: {topolgy: cpu}", r":3: jobs.c.topolgy: .*'topology'"),
    ("project: 3", r":1: project: 3 is a whole number; text belongs here"),
    (
        "project: p-x1234\njobs: {a: {timeout: 3600}}",
        r":2: jobs.a.timeout: 3600 is a number without a unit: write 3600s",
    ),
    (
        "project: p-x1234\njobs: {a: {boot_disk_size_gb: 100GB, timeout: 1h, max_wait_duration: soon}}",
        r"'100GB' is text; a whole number[\s\S]*'1h' is not a duration: write 3600s[\s\S]*'soon' .* such as 3600s",
    ),
    ("project: p\nregion: no", r":2: region: false is a boolean; text"),
    ("project: p\nbucket: b", r":2: bucket: 'b' is not a bucket such as"),
    ("project: p\nproject: q", r":2: key 'project' is there twice"),
    ("project: p\njobs: {c: {strategy: SPOTTY}}", r":2: jobs.c.strategy: 'SPOTTY' .*'SPOT'"),
    ("project: p\njobs: {c: {replica_count: 1.5}}", r":2: jobs.c.replica_count: 1.5 is a number; a whole number"),
    ("project: p\njobs: {c: {args: 1}}", r"jobs.c.args: 1 is a whole number; a mapping or a list"),
    ("project: p\njobs: {c: {args: {x: [1]}}}", r"jobs.c.args.x: \[1\] is a list"),
    ("project: p\njobs: {c: {env: {A: .inf}}}", r"jobs.c.env.A: inf is not a finite number"),
    ("project: p\njobs: {C: {}}", r"'C' is not a name"),
    ("project: p\njobs: [1]", r"jobs: \[1\] is a list; a mapping"),
    ("project: p\nsweeps: {s: {job: cpu}}", r"sweeps.s.job: there is no job 'cpu'"),
    ("project: p\nsweeps: {s: {}}", r"sweeps.s: the key 'job' is required"),
    ("project: p\njobs: {c: {}}\nsweeps: {c: {job: c}}", r":3: sweeps.c: a job has the same name"),
    (
        "project: p\njobs: {c: {}}\nschedules: {n: {run: d, cron: '* * * * *'}}",
        r"schedules.n.run: there is no job or",
    ),
    (
        "project: p\njobs: {c: {}}\nschedules: {n: {run: c, cron: '* * * * *', retry_config: {retry_count: 9}}}",
        r":3: schedules.n.retry_config.retry_count: 9 is above 5, the largest number that fits",
    ),
    ("project: p\ntrigger: {budget: {live_jobs: -1}}", r"trigger.budget.live_jobs: -1 is below 0"),
    (
        "project: p\nbucket: gs://My-bucket",
        r"'gs://My-bucket' is not a bucket such as gs://my-bucket: lowercase letters",
    ),
    ("project: p\nsilence: {a: ' '}", r"silence.a: `silence` needs a reason for each rule"),
    ("[1]", r"the project file is a list"),
    ("a: [", r"vertexrig.yaml:2: not valid YAML"),
    ("region: us-central1", r"the key 'project' is required"),
    ("project: ${", r"is not \$\{NAME\}"),
    ("project: ${a-b}", r"is not \$\{NAME\}"),
    ("project: ${NOPE}", r"environment variable NOPE is not set"),
]


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_bad_files_are_one_clear_error(text: str, words: str) -> None:
    """Whatever is wrong with the file is a ConfigError with file, line, key, value and rule."""
    with pytest.raises(ConfigError, match=words):
        load(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("jobs: {c: {args: {column: y}}}", r"jobs.c.args.column: y is read as true .* put it in quotes"),
        ("jobs: {c: {env: {AXIS: n}}}", r"jobs.c.env.AXIS: n is read as false"),
        ("sweeps: {s: {job: c, over: {axis: [x, y]}}}", r"sweeps.s.over.axis\[1\]: y is read as true"),
    ],
)
def test_a_letter_that_may_be_text_gets_quotes(text: str, words: str) -> None:
    """`y` and `n` are refused where text and booleans belong: a job would get true where its author wrote a name."""
    with pytest.raises(ConfigError, match=f"vertexrig.yaml:2: {words}"):
        load(f"project: p\n{text}")


def test_a_letter_is_a_boolean_where_one_belongs_and_text_in_quotes() -> None:
    """`y` is true for a key that is true or false, and in quotes it is text for one that takes both."""
    job = load("project: p\njobs: {c: {enable_web_access: y, args: {column: 'y', shuffle: true}}}").project.jobs["c"]
    assert job.enable_web_access is True and job.args == {"column": "y", "shuffle": True}


def test_all_errors_are_told_at_once() -> None:
    """Whatever is wrong with a file's values is told in one error, each with its line; what only follows from another is left out."""
    text = (
        "project: 3\nregion: ${NOPE}\nbucket: ${${}\njobs:\n  a: {topolgy: cpu, timeout: 3600}\n  b: [1]\n  c: {spec: {labels: {x: '${NOPE}'}}}\n"
        "sweeps:\n  s: {}\n  t: {jbo: a}\nlocal: {slots: '${NOPE}', allow_hosts: [a b, c d]}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(text)
    places = [(one.line, one.message.split(":")[0]) for one in caught.value.errors]
    assert places == [
        (1, "project"), (2, "region"), (3, "bucket"), (5, "jobs.a.topolgy"), (5, "jobs.a.timeout"), (6, "jobs.b"),
        (7, "jobs.c.spec.labels.x"), (9, "sweeps.s"), (10, "sweeps.t.jbo"), (11, "local.slots"), (11, "local.allow_hosts[0]"),
        (11, "local.allow_hosts[1]"),
    ]  # fmt: skip
    first, *lines = str(caught.value).splitlines()
    assert first == "12 things are wrong:" and lines == [f"  {one}" for one in caught.value.errors]
    assert caught.value.exit_code == 2 and caught.value.details["line"] == 1
    assert [row["line"] for row in caught.value.details["errors"]] == [line for line, _ in places]


def test_names_that_lead_nowhere_are_told_at_once() -> None:
    """So are names, and what a schedule cannot follow."""
    text = "project: p\njobs: {C: {args: {--x: 1}}}\nsweeps: {s: {job: d}}\nschedules: {n: {run: e, cron: '', then: [register]}}"
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert [one.message.split(":")[0] for one in caught.value.errors] == [
        "jobs.C",
        "jobs.C.args.--x",
        "sweeps.s.job",
        "schedules.n.run",
    ]


def test_only_the_first_of_many_errors_are_looked_at() -> None:
    """A file with thousands of wrong keys ends with the first fifty of them."""
    with pytest.raises(ConfigError, match="many things are wrong; the first ones") as caught:
        load("project: p\n" + "".join(f"projec{n}: 1\n" for n in range(5000)))
    assert len(caught.value.errors) == 50


def test_variables_are_filled_in_with_their_fields_types() -> None:
    """${NAME} and ${NAME:-default} become what the field wants; $${ is a literal ${."""
    text = "project: ${P}\nregion: ${R:-us-east1}\njobs: {c: {replica_count: '${N:-3}', args: {a: '$${x}', b: '${N}-${N}'}, machine_type: '${N}'}}"
    project = load(text, P="12", N="4").project
    job = project.jobs["c"]
    assert (project.project, project.region) == ("12", "us-east1")
    assert (job.replica_count, job.machine_type, job.args) == (4, "4", {"a": "${x}", "b": "4-4"})


def test_a_variable_cannot_add_keys() -> None:
    """A variable's text is one value: it is never read as YAML structure where text belongs."""
    project = load("project: x\nservice_account: '${P}'", P="x\nregion: evil").project
    assert (project.service_account, project.region) == ("x\nregion: evil", "us-central1")


@pytest.mark.parametrize(
    ("override", "target", "path", "value"),
    [
        ("machine_type=e2-standard-4", "cpu", "machine_type", "e2-standard-4"),
        ("jobs.cpu.machine_type=on", None, "machine_type", "on"),
        ("args.epochs=3", "cpu", "args", {"epochs": "3", "flag": None}),
        ("args=[--x, --y=1]", "cpu", "args", ("--x", "--y=1")),
        ("labels.c=1", "cpu", "labels", {"a": "b", "c": "1"}),
        ("replica_count=4", "cpu", "replica_count", 4),
        ("worker.replica_count=4", "cpu", "worker", None),
        ("display_name=a=b", "cpu", "display_name", "a=b"),
        ("spec.scheduling={timeout: 5s}", "cpu", "spec", {"scheduling": {"timeout": "5s"}}),
    ],
)
def test_overrides_have_the_types_of_the_file(override: str, target: str | None, path: str, value: Any) -> None:
    """--set takes a key of the named job, or a whole path, and its text becomes what the field wants."""
    found = getattr(load(BASE, override, target=target).project.jobs["cpu"], path)
    if path == "worker":
        assert found.replica_count == 4
    else:
        assert found == value


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("machine_typ=x", "has no key 'machine_typ'. Did you mean 'machine_type'"),
        ("machine_type", "write KEY=VALUE"),
        ("=x", "write KEY=VALUE"),
        ("a..b=x", "write KEY=VALUE"),
        ("replica_count=x", r"--set replica_count=x: jobs.cpu.replica_count: 'x' is text; a whole number"),
        ("args.epochs.x=1", "is a whole number, so it has no key 'x'"),
        ("machine_type.x=1", "is text, so it has no key"),
        ("labels={a: [b]}", r"^--set labels={a: \[b\]}: jobs.cpu.labels.a: "),  # the file has labels.a, too
        ("spec={a: [", "not valid YAML"),
        ("jobs.nope.machine_type=x", None),
    ],
)
def test_bad_overrides_are_one_clear_error(override: str, words: str | None) -> None:
    """An override that does not fit names itself, what is wrong, and the nearest key."""
    if words is None:
        assert load(BASE, override, target="cpu").project.jobs["nope"].machine_type == "x"
        return
    with pytest.raises(VertexrigError, match=words):
        load(BASE, override, target="cpu")


def test_a_key_of_digits_that_are_no_number() -> None:
    """`²` counts as a digit in Unicode, and is a key like any other."""
    assert load(BASE, "args.²=1", target="cpu").project.jobs["cpu"].args["²"] == "1"


def test_a_job_that_is_not_there_names_the_nearest() -> None:
    """Asking for an unknown job or sweep names the nearest one."""
    with pytest.raises(UsageError, match=r"has no job or sweep 'swep'. Did you mean 'sweep'"):
        load().runnable("swep")


def test_the_file_is_searched_upwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --file the nearest vertexrig.yaml in this folder or above is taken; its folder is where paths start."""
    (tmp_path / "vertexrig.yaml").write_text(BASE)
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    loaded = config.load()
    assert loaded.file == tmp_path / "vertexrig.yaml" and loaded.path("x") == tmp_path / "x"
    (tmp_path / "vertexrig.yaml").unlink()
    with pytest.raises(UsageError, match="there is no vertexrig.yaml"):
        config.load()


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"project: \xe9"])
def test_a_file_that_is_no_text_is_an_error(tmp_path: Path, content: bytes) -> None:
    """A file that is not UTF-8 is one error, not a traceback."""
    (tmp_path / "v.yaml").write_bytes(content)
    with pytest.raises(UsageError, match="is not text in UTF-8"):
        config.load(tmp_path / "v.yaml")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "cpu",
                    "sweep",
                    "topology",
                    "args",
                    "job",
                    "study",
                    "metrics",
                    "parameters",
                    "env",
                    "spec",
                    "min_value",
                    "x",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@pytest.mark.whole
@settings(max_examples=examples(60, 1000), deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["project", "jobs", "sweeps", "schedules", "trigger", "trainer", "local", "labels", "silence"]),
        JSON,
    )
)
def test_any_project_file_loads_or_is_one_error(data: dict[str, Any]) -> None:
    """A project file of any shape loads or gives a VertexrigError."""
    try:
        load(yaml.safe_dump(data))
    except VertexrigError:
        pass


@settings(max_examples=examples(60, 1000), deadline=None)
@given(st.text(max_size=40), st.sampled_from([None, "cpu", "sweep"]))
def test_any_override_is_taken_or_is_one_error(override: str, target: str | None) -> None:
    """An override of any text is taken or gives a VertexrigError."""
    try:
        load(BASE, override, target=target)
    except VertexrigError:
        pass


@pytest.mark.parametrize(
    "line", ['region: "evil.example:443/x?"', "region: us-central1.evil", "project: ../../x", 'project: "a/b"']
)
def test_a_project_file_cannot_choose_the_host(line: str) -> None:
    """`region` and `project` become part of a host and a path, so they are names and nothing else."""
    text = line if line.startswith("project") else f"project: x\n{line}"
    with pytest.raises(ConfigError, match="such as"):
        load(text)


def test_lines_follow_the_items_of_a_list() -> None:
    """After an item of a list is removed, the later items, and overrides of them, keep their lines and their words."""
    text = "project: p\njobs:\n  listed:\n    machine_type: n1-standard-4\n    args:\n    - --one\n    - --two\n    - --three\n"
    loaded = load(text, "args.2=--last", "args.0-", target="listed")
    assert loaded.project.jobs["listed"].args == ("--two", "--last")
    line = next(number for number, row in enumerate(text.splitlines(), 1) if "--two" in row)
    assert loaded.origins.of(("jobs", "listed", "args", 0)) == line
    assert loaded.origins.of(("jobs", "listed", "args", 1)) == "args.2=--last"
    wrong = text.replace("--two", "[--two]")
    with pytest.raises(ConfigError, match=rf":{line}: jobs.listed.args\[0\]"):
        load(wrong, "args.0-", target="listed")
