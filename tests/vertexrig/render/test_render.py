"""Rendering: golden files for every topology, values that stay values, errors that name template and line."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tools import examples
from vertexrig import spec, yamltext
from vertexrig.catalog import load
from vertexrig.cli.creation import gcloud_command
from vertexrig.errors import ConfigError, ConfigErrors, TemplateError, UsageError, VertexrigError
from vertexrig.project import config
from vertexrig.render import renderer as render
from vertexrig.render.bounded import BoundedTemplates
from vertexrig.render.sandbox import Templates
from vertexrig.spec import messages

PROJECT = Path(__file__).parents[2] / "golden" / "project.yaml"
LOADED = config.load(PROJECT, environ={})
RENDERER = render.Renderer(LOADED, load())
NAMES = [*LOADED.project.jobs, *LOADED.project.sweeps]
REPOSITORY = PROJECT.parents[2]
OWN = config.load(REPOSITORY / "vertexrig.yaml", environ={}).project


def project(text: str, *overrides: str, target: str | None = None, folder: Path | str = "") -> render.Renderer:
    base = "project: p\nbucket: gs://b-b\ntrainer: {package_uris: [gs://b-b/t.tar.gz]}\n"
    file = Path(folder, "vertexrig.yaml")
    loaded = config.loads(base + text, file=file, overrides=overrides, target=target, environ={})
    made = render.Renderer(loaded, load())
    made.templates = Templates(made.folders)  # in this process: tests/attacks/test_files.py tries the one of their own
    return made


@pytest.mark.parametrize("name", NAMES)
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    """Each topology and option renders to its golden file, byte for byte, with the gcloud command at its end."""
    rendered = RENDERER.render(name)
    golden(
        f"jobs/{name}.yaml",
        f"{rendered.text}# {gcloud_command(LOADED.project, rendered.view, f'build/jobs/{name}.yaml')}\n",
    )


@pytest.mark.parametrize("image", ["prebuilt", "build"])
@pytest.mark.parametrize("name", [*OWN.jobs, *OWN.sweeps])
def test_golden_of_this_repository(name: str, image: str, golden: Callable[[str, str], None]) -> None:
    """Each job and sweep of this repository renders to its golden file on prebuilt images and, with IMAGE=build, on its own."""
    renderer = render.Renderer(config.load(REPOSITORY / "vertexrig.yaml", environ={"IMAGE": image}), load())
    rendered = renderer.render(name)
    # the hash of the trainer's sources, which are not what is tested
    text = re.sub(r"(?<=[+:])[0-9a-f]{12}\b", "HASH", rendered.text)
    command = gcloud_command(renderer.loaded.project, rendered.view, f"build/jobs/{name}.yaml")
    golden(f"repository/image-{image}/{name}.yaml", f"{text}# {command}\n")


PREBUILT = [
    ("import torch", "machine_type: m", "pytorch-xla.2-4.py310"),
    (
        "import lightning as L",
        "topology: gpu, accelerator_type: NVIDIA_L4, accelerator_count: 1",
        "pytorch-gpu.2-4.py310",
    ),
    ("import torch", "topology: tpu, accelerator_type: TPU_V3, accelerator_count: 8", "pytorch-tpu.2-2.cp310"),
    ("from keras import layers", "machine_type: m", "tf-cpu.2-17.py310"),
    ("import keras", "topology: tpu, accelerator_type: TPU_V3, accelerator_count: 8", "tf-tpu.2-15.cp310"),
    ("import sklearn.svm", "machine_type: m", "sklearn-cpu.1-6"),
    (
        "try:\n    import torch\nexcept ImportError:\n    raise\ndef f():\n    import sklearn",
        "machine_type: m",
        "pytorch-xla.2-4.py310",
    ),
    (
        "try:\n    import torch\nexcept ImportError:\n    torch = None\nimport sklearn",
        "machine_type: m",
        "sklearn-cpu.1-6",
    ),
    ("import xgboost", "machine_type: m", "xgboost-cpu.2-1"),
    ("import lightgbm", "machine_type: m", "sklearn-cpu.1-6"),
]


@pytest.mark.parametrize(("source", "job", "image"), PREBUILT)
def test_prebuilt_follows_the_trainer_and_the_machines(tmp_path: Path, source: str, job: str, image: str) -> None:
    """`prebuilt` is the newest image of the framework that the trainer imports, or of the one that the file names."""
    (tmp_path / "train.py").write_text(f"{source}\n")
    trainer = f"trainer: {{path: {tmp_path / 'train.py'}, module: train, image: prebuilt"

    def rendered(more: str = "") -> str:
        text = f"project: p\nbucket: gs://b-b\n{trainer}{more}}}\njobs: {{c: {{{job}}}}}"
        loaded = config.loads(text, file=tmp_path / "vertexrig.yaml", environ={})
        return render.Renderer(loaded, load()).render("c").text

    assert f'docker.pkg.dev/vertex-ai/training/{image}:latest"' in rendered() and "pythonPackageSpec" in rendered()
    assert "/vertex-ai/training/pytorch-" in rendered(", build: {framework: pytorch}")
    (tmp_path / "train.py").write_text("import polars\n")
    with pytest.raises(
        ConfigError, match=r"trainer.image: .*imports no framework .*such as tf-2.17, which has the most packages"
    ):
        rendered()
    with pytest.raises(ConfigError, match=r"there is no prebuilt .* image of framework jax\. Available: tf-2"):
        rendered(", build: {framework: jax}")


@pytest.mark.parametrize("name", NAMES)
def test_rendered_jobs_read_strictly_and_alike_everywhere(name: str) -> None:
    """What is rendered gives no finding in the strict reading, is Google's message, and PyYAML reads it the same."""
    rendered = RENDERER.render(name)
    document = spec.parse(rendered.text, for_gcloud=False)
    assert document.findings == () and document.kind == rendered.view.kind
    messages.to_message(document.kind, document.data)
    assert yaml.safe_load(rendered.text) == yamltext.read(rendered.text).data


def test_every_template_has_a_golden_file() -> None:
    """Every topology that is shipped is rendered by the golden project."""
    used = {RENDERER.render(name).view.topology for name in NAMES}
    assert used == set(RENDERER.topologies())


@pytest.mark.parametrize("name", ["cpu", "sweep-everything"])
def test_rendering_is_deterministic(name: str) -> None:
    """The same project renders to the same bytes, in this renderer and in a new one."""
    again = render.Renderer(config.load(PROJECT, environ={}), load())
    assert RENDERER.render(name).text == RENDERER.render(name).text == again.render(name).text


AWKWARD = [
    "on", "no", "null", "~", "1e-4", "0x1f", "12:30:45", "2024-01-01", "a: b", "a #b", "- a", "{a: 1}", "[1]", "'", '"',
    "C:\\new", "two\nlines", "tab\there", " lead", "trail ", "", "{{ x }}", "{% raw %}", "{# c #}", "&a", "*a", "!x", "%y",
    "\u0085nel", "\u2028sep", "\ufeffbom", "\x7f", "\x00", "é", "日本", "😀", "$(HOME)", "`x`", "--flag=1\nkey: value", "x" * 5000,
]  # fmt: skip


def _key(value: str) -> str:
    """A key of the project file: YAML holds keys to 1,024 characters, variables are not filled in there, and the name of a
    flag has no dashes of its own.
    """
    key = value[:100].replace("${", "$")
    return f"x{key}" if key.startswith("-") else key


def _hostile(value: str) -> tuple[dict[str, Any], spec.Document]:
    """A project with `value` in every text field of a job, and what its YAML is read as."""
    data = {
        "project": "p",
        "bucket": "gs://b-b",
        "trainer": {"module": value, "package_uris": [value]},
        "jobs": {
            "j": {
                "topology": "multi-worker",
                "machine_type": value,
                "accelerator_type": "NVIDIA_TESLA_T4",
                "accelerator_count": 1,
                "worker": {"env": {"W": value}},
                "image": "us-docker.pkg.dev/vertex-ai/training/tf-gpu.2-17.py310:latest",
                "boot_disk_type": value,
                "args": {"a": value, "b": value},
                "env": {"NAME": value},
                "network": value,
                "service_account": value,
                "tensorboard": value,
                "base_output_directory": value,
                "persistent_resource_id": value,
                "reserved_ip_ranges": [value, value],
                "nfs_mounts": [{"server": value, "path": value, "mount_point": value}],
                "psc_interface_config": {"network_attachment": value},
                "spec": {"experiment": value},
            }
        },
        "sweeps": {
            "s": {
                "job": "j",
                "max_trial_count": 2,
                "study": {
                    "metrics": {_key(value): "MAXIMIZE"},
                    "parameters": {_key(value): {"categorical_value_spec": {"values": [value, "x"]}}},
                },
            }
        },
    }
    text = yamltext.scalar(data).replace("${", "$${")
    loaded = config.loads(text, file=Path("v.yaml"), environ={})
    rendered = render.Renderer(loaded, load()).render("s")
    assert yaml.safe_load(rendered.text) == yamltext.read(rendered.text).data
    return data, spec.parse(rendered.text, for_gcloud=False)


def _check_round_trip(value: str) -> None:
    data, document = _hostile(value)
    assert document.findings == ()
    job, study = document.job, document.study
    chief, worker = job["workerPoolSpecs"]
    assert study is not None
    assert set(document.data) == {"studySpec", "maxTrialCount", "parallelTrialCount", "trialJobSpec"}
    assert [metric["metricId"] for metric in study["metrics"]] == [_key(value)]
    assert study["parameters"] == [{"parameterId": _key(value), "categoricalValueSpec": {"values": [value, "x"]}}]
    assert chief["machineSpec"]["machineType"] == worker["machineSpec"]["machineType"] == value
    program = chief["pythonPackageSpec"]
    own = [key for key in data["jobs"]["j"]["args"] if key != _key(value)]
    assert program["args"] == [f"--{key}={value}" for key in own]
    assert program["env"] == [{"name": "NAME", "value": value}]
    assert worker["pythonPackageSpec"]["env"] == [{"name": "NAME", "value": value}, {"name": "W", "value": value}]
    assert (program["pythonModule"], program["packageUris"]) == (value, [value])
    assert chief["nfsMounts"] == [{"server": value, "path": value, "mountPoint": value}]
    assert job["reservedIpRanges"] == [value, value]
    for key in ("network", "serviceAccount", "tensorboard", "persistentResourceId", "experiment"):
        assert job[key] == value
    assert job["baseOutputDirectory"] == {"outputUriPrefix": value}
    assert job["pscInterfaceConfig"] == {"networkAttachment": value}


@pytest.mark.parametrize("value", AWKWARD, ids=[ascii(value)[:20] for value in AWKWARD])
def test_awkward_values_survive_exactly(value: str) -> None:
    """Awkward texts in every text field come out of the YAML exactly as they went in, and add no key."""
    if value == "":
        pytest.skip("empty text means not set in several fields")
    _check_round_trip(value)


@settings(max_examples=examples(6, 200), deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60))
def test_any_text_survives_exactly(value: str) -> None:
    """Any Unicode text in every text field survives rendering and reading exactly."""
    _check_round_trip(value)


@settings(max_examples=examples(100, 3000), deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**62), 2**62))
def test_numbers_survive_exactly_in_every_reader(value: float) -> None:
    """A number written to YAML is the same number to gcloud's reading and to PyYAML."""
    text = f"a: {yamltext.scalar(value)}"
    assert yaml.safe_load(text)["a"] == value == yamltext.read(text).data["a"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", object()])
def test_what_yaml_cannot_hold_is_refused(value: Any) -> None:
    """Numbers that are not finite, half surrogates and objects are refused, not written."""
    with pytest.raises((ValueError, TypeError)):
        yamltext.scalar(value)


def test_the_command_is_quoted_for_a_shell() -> None:
    """The printed command splits back into the words meant, whatever the display name holds."""
    renderer = project("jobs: {c: {machine_type: e2-standard-4}}", 'display_name=it\'s $HOME; rm -rf "x"', target="c")
    line = gcloud_command(renderer.loaded.project, renderer.view("c"), "a b.yaml")
    assert shlex.split(line)[-2:] == ['--display-name=it\'s $HOME; rm -rf "x"', "--config=a b.yaml"]


TEMPLATE_ERRORS = [
    ("workerPoolSpecs: {{ nope }}", r"own.yaml.j2:1: 'nope' is undefined"),
    ("a: 1\nb: {{ job.nope }}", r"own.yaml.j2:2: .*no attribute 'nope'"),
    ("{{ name | nope }}", r"own.yaml.j2:1: No filter named 'nope'"),
    ("{{ name | safe }}", r"own.yaml.j2:1: No filter named 'safe'"),
    ("{% if name is nope %}{% endif %}", r"own.yaml.j2:1: No test named 'nope'"),
    ("a: 1\n{% if %}", r"own.yaml.j2:2: "),
    ("{% for %}", r"own.yaml.j2:1: "),
    ("{{ 1 / 0 }}", r"own.yaml.j2:1: division by zero"),
    ("{{ job }}", r"own.yaml.j2:1: Job cannot be written to YAML"),
    ("{% include 'nope' %}", r"own.yaml.j2 includes 'nope', which is not there"),
    ("{% include 'own.yaml.j2' %}", r"includes or calls itself without end"),
    ("{{ name() }}", r"own.yaml.j2:1: "),
    ("{{ name + 1 }}", r"own.yaml.j2:1: "),
]


@pytest.mark.parametrize(("template", "words"), TEMPLATE_ERRORS)
def test_template_errors_name_template_and_line(tmp_path: Path, template: str, words: str) -> None:
    """Undefined names, filters and tests, syntax errors and failing expressions name the template and the line."""
    (tmp_path / "own.yaml.j2").write_text(template)
    renderer = project("templates: .\njobs: {c: {topology: own, machine_type: x}}", folder=tmp_path)
    with pytest.raises(TemplateError, match=words):
        renderer.render("c")


def test_a_literal_is_written_as_any_value(tmp_path: Path) -> None:
    """A text, number, boolean or none that stands in a template's `{{ }}` becomes JSON, as the value of a variable does."""
    literals = ("'a: <b & \"c\" # d'", "none", "true", "1e-5", "'A' | lower", "'a' ~ 1", "[1, none]")
    (tmp_path / "own.yaml.j2").write_text("".join(f"k{n}: {{{{ {one} }}}}\n" for n, one in enumerate(literals)))
    text = project("templates: .\njobs: {c: {topology: own, machine_type: x}}", folder=tmp_path).render("c").text
    expected = ['a: <b & "c" # d', None, True, 1e-5, "a", "a1", [1, None]]
    assert yaml.safe_load(text) == {f"k{n}": value for n, value in enumerate(expected) if value is not None}


def test_a_part_that_may_be_missing(tmp_path: Path) -> None:
    """`include … ignore missing` renders without the part, also for a job whose roles are looked up in the template."""
    roles = "{{ chief.machine_type }} {{ worker.machine_type }}"
    (tmp_path / "own.yaml.j2").write_text("{% include 'more.yaml.j2' ignore missing %}" + f"text: {roles!r}\n")
    jobs = "jobs: {c: {topology: own, machine_type: x, worker: {machine_type: z, replica_count: 1}}}"
    assert '"x"' in project(f"templates: .\n{jobs}", folder=tmp_path).render("c").text


def test_errors_in_parts_name_the_part(tmp_path: Path) -> None:
    """An error inside a shared macro names that file and line, not the topology's."""
    (tmp_path / "parts.yaml.j2").write_text(
        "\n\n{% macro program(p) %}{{ p.nope }}{% endmacro %}{% macro machine(p, t) %}{% endmacro %}"
    )
    renderer = project("templates: .\njobs: {c: {topology: cpu, machine_type: x}}", folder=tmp_path)
    with pytest.raises(TemplateError, match=r"parts.yaml.j2:3: "):
        renderer.render("c")


@pytest.mark.parametrize("topology", ["cpu", "tpu, accelerator_type: TPU_V3", "gpu, accelerator_type: NVIDIA_L4"])
def test_no_field_of_a_machine_is_left_out(topology: str) -> None:
    """A field that does not belong to a topology's machines is written, and so checked, rather than left out."""
    given = f"topology: {topology}, machine_type: m, gpu_partition_size: 1g.10gb, tpu_topology: 2x2"
    text = project(f"jobs: {{c: {{{given}, image: gcr.io/p/i}}}}").render("c").text
    assert 'gpuPartitionSize: "1g.10gb"' in text and 'tpuTopology: "2x2"' in text


def test_own_templates_override_ours_file_by_file(tmp_path: Path) -> None:
    """A file in the user's folder replaces ours of the same name; the others are still ours."""
    (tmp_path / "cpu.yaml.j2").write_text("workerPoolSpecs:\n- machineSpec: {machineType: {{ chief.machine_type }}}\n")
    renderer = project(
        "templates: .\njobs: {c: {machine_type: m}, g: {topology: gpu, machine_type: m, accelerator_type: NVIDIA_L4}}",
        folder=tmp_path,
    )
    assert renderer.render("c").text.splitlines()[1:] == ["workerPoolSpecs:", '- machineSpec: {machineType: "m"}']
    assert "acceleratorType" in renderer.render("g").text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("jobs: {c: {topology: gpux}}", r"jobs.c.topology: there is no template 'gpux'. Did you mean 'gpu'"),
        ("jobs: {c: {topology: ../cpu}}", r"there is no template '../cpu'"),
        ("jobs: {c: {topology: parts}}", r"there is no template 'parts'"),
        ("jobs: {c: {topology: gpu}}", r"topology gpu needs accelerator_type"),
        ("jobs: {c: {topology: tpu}}", r"topology tpu needs"),
        ("jobs: {c: {accelerator_type: NVIDIA_L4}}", r"topology cpu takes no accelerator_type"),
        ("jobs: {c: {topology: multi-worker}}", r"needs workers beside the chief"),
        ("jobs: {c: {topology: parameter-server, worker: {}}}", r"needs worker and ps"),
        ("jobs: {c: {ps: {}}}", r"jobs.c.ps: topology cpu has no ps"),
        ("jobs: {c: {topology: multi-worker, worker: {}, ps: {}}}", r"topology multi-worker has no ps"),
        ("jobs: {c: {image: tf-9.9}}", r"no prebuilt cpu image 'tf-9.9'"),
        (
            "jobs: {c: {topology: tpu, accelerator_type: TPU_V3, image: tf-2.17}}",
            r"no prebuilt tpu image 'tf-2.17'.*tf-2.15",
        ),
        ("jobs: {c: {image: custom}}", r"custom_image must name your image"),
        (
            "jobs: {c: {topology: multi-worker, worker: {}, reduction_server: {image: custom}}}",
            r"jobs.c.reduction_server.image: image: custom is of the trainer",
        ),
        ("jobs: {c: {}}\nsweeps: {s: {job: c}}", r"needs a study"),
        ("jobs: {c: {}}\nsweeps: {s: {job: c, study: {metrics: {}, parameters: {}}}}", r"needs max_trial_count"),
        ("jobs: {c: {}}\nsweeps: {s: {job: c, topology: grid}}", r"topology grid needs over"),
        ("jobs: {c: {args: [a]}}\nsweeps: {s: {job: c, args: {x: 1}}}", r"sweeps.s.args: .*must be a list too"),
        ("templates: nope\njobs: {c: {}}", r"there is no folder nope"),
        ("templates: /nope\njobs: {c: {}}", r"'/nope' is outside the project's checkout.* --set templates=/nope"),
    ],
)
def test_what_cannot_be_rendered_is_an_error_in_the_project_file(text: str, words: str) -> None:
    """A project that asks for what cannot be is a ConfigError that names the key and what to write."""
    with pytest.raises(ConfigError, match=words):
        renderer = project(text)
        renderer.render("s" if "sweeps" in text else "c")


def test_the_errors_of_all_pools_are_told_together() -> None:
    """Each pool with an image that is not there is named, and an image that several pools take from the job once."""
    text = "jobs: {c: {topology: parameter-server, image: tf-9.9, worker: {}, ps: {image: tf-9.8}}}"
    with pytest.raises(ConfigErrors) as caught:
        project(text).render("c")
    first, second = map(str, caught.value.errors)
    assert "jobs.c.image: job 'c': there is no prebuilt cpu image 'tf-9.9'" in first
    assert "jobs.c.ps.image: job 'c' (ps): there is no prebuilt cpu image 'tf-9.8'" in second


def test_a_reduction_server_has_no_keys_of_the_jobs_arguments() -> None:
    """Its arguments come from its own keys or are none; the workers inherit those of the job, with their keys."""
    job = "machine_type: n1-standard-8, args: {epochs: 1}, worker: {}, reduction_server: {}"
    pools = project(f"jobs: {{c: {{topology: multi-worker, {job}}}}}").view("c").pools
    found = {role: pool.source_keys.get(("args", 0)) for role, pool in pools.items() if pool is not None}
    own = ("jobs", "c", "args", "epochs")
    assert found == {"chief": own, "worker": own, "reduction_server": None}


def test_a_sweep_drops_arguments_that_the_study_decides() -> None:
    """An argument of the job that is a parameter of the study is left out, so that the trainer gets it once."""
    text = (
        "jobs: {c: {machine_type: m, args: {lr: 1, momentum: 2, epochs: 3}}}\n"
        "sweeps: {s: {job: c, max_trial_count: 1, args: {epochs: 4}, study: {metrics: {a: MAXIMIZE}, parameters: "
        "{lr: {discrete_value_spec: {values: [1]}, conditional_parameter_specs: [{parent_discrete_values: {values: [1]}, "
        "parameter_spec: {parameter_id: momentum, double_value_spec: {min_value: 0, max_value: 1}}}]}}}}}"
    )
    data = yamltext.read(project(text).render("s").text).data
    assert data["trialJobSpec"]["workerPoolSpecs"][0]["pythonPackageSpec"]["args"] == ["--epochs=4"]


def test_the_package_uri_follows_the_sources(tmp_path: Path) -> None:
    """Without package_uris the package's name carries a hash: it changes with the sources, and with nothing else."""
    folder = tmp_path / "t"
    (folder / "trainer").mkdir(parents=True)
    (folder / "setup.py").write_text(
        "from setuptools import setup\nsetup(name='trainer', version='1.0', packages=['trainer'])\n"
    )
    (folder / "trainer" / "__init__.py").touch()
    (folder / "trainer" / "task.py").write_text("print(1)\n")
    text = f"project: p\nbucket: gs://b-b\ntrainer: {{path: '{folder}'}}\njobs: {{c: {{machine_type: m}}}}"

    def uri() -> str:
        loaded = config.loads(text, file=tmp_path / "vertexrig.yaml", environ={})
        data = yamltext.read(render.Renderer(loaded, load()).render("c").text).data
        return str(data["workerPoolSpecs"][0]["pythonPackageSpec"]["packageUris"][0])

    first = uri()
    assert first.startswith("gs://b-b/packages/trainer-1.0+") and first.endswith(".tar.gz")
    os.utime(folder / "trainer" / "task.py", (1, 1))
    assert uri() == first
    (folder / "trainer" / "task.py").write_text("print(2)\n")
    assert uri() != first


@pytest.mark.parametrize(
    ("base", "over", "result"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
        ({"maxTrialCount": 1}, {"max_trial_count": 2}, {"maxTrialCount": 2}),
        ({"a": [{"b": 1}, {"b": 2}]}, {"a": [{"c": 3}]}, {"a": [{"b": 1, "c": 3}, {"b": 2}]}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        (
            {"labels": {"a": "b", "c_d": "e"}},
            {"labels": {"my_team": "x", "c_d": None}},
            {"labels": {"a": "b", "my_team": "x"}},
        ),
    ],
)
def test_spec_is_merged_field_by_field(base: Any, over: Any, result: Any) -> None:
    """`spec:` lays its fields over the rendered ones; mappings merge, lists of mappings merge by place, null removes."""
    assert render.merge(base, over) == result


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), inner, max_size=3)
    ),
    max_leaves=15,
)


@settings(max_examples=examples(60, 2000), deadline=None)
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), PLAIN, min_size=1, max_size=4))
def test_block_yaml_reads_back_exactly(data: dict[str, Any]) -> None:
    """Plain data written as block YAML reads back as the same data."""
    assert yaml.safe_load("\n".join(yamltext.block(data))) == data


@pytest.mark.whole
def test_any_template_renders_or_is_one_error(tmp_path: Path) -> None:
    """A template of any text renders or gives a VertexrigError."""
    process = BoundedTemplates([str(tmp_path), str(render.built_in_templates())])  # some templates have no end
    number = itertools.count()

    @settings(max_examples=examples(25, 500), deadline=None)
    @given(st.text(alphabet="{}%# |.()[]abcnamejobchief'\"0123+-*/~\n", max_size=60))
    def renders(template: str) -> None:
        name = f"own{next(number)}"
        (tmp_path / f"{name}.yaml.j2").write_text(template)
        made = project(f"templates: .\njobs: {{c: {{topology: {name}, machine_type: x}}}}", folder=tmp_path)
        made.templates = process
        with suppress(VertexrigError):
            made.render("c")

    renders()


def test_unknown_jobs_are_named() -> None:
    """Rendering what is not there names the nearest."""
    with pytest.raises(UsageError, match="Did you mean 'grid'"):
        RENDERER.render("grd")
