"""Building a trainer's package: identity, contents, refusals, verification."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.packages import PLAIN, SETUP, TRAINERS, small
from tests.support.tools import examples
from vertexrig.errors import PackageError
from vertexrig.package.builder import Built, build
from vertexrig.package.sources import gather, identify


@pytest.fixture
def trainer(tmp_path: Path) -> Path:
    """A copy of the full test trainer that a test may change."""
    return Path(shutil.copytree(TRAINERS / "full", tmp_path / "trainer_pkg"))


def names(archive: Path) -> list[str]:
    """Paths in an sdist, without its top folder."""
    with tarfile.open(archive) as packed:
        return sorted(member.name.split("/", 1)[1] for member in packed if member.isfile())


def text(archive: Path, name: str) -> str:
    """One file of an sdist."""
    with tarfile.open(archive) as packed:
        member = next(member for member in packed if member.name.endswith("/" + name))
        stream = packed.extractfile(member)
        assert stream is not None
        return stream.read().decode()


# identify


def test_the_identity_is_the_same_wherever_and_whenever(trainer: Path, tmp_path: Path) -> None:
    """Another place, other times and another order of creation give the same identity."""
    first = identify(trainer, tf_version="2.17")
    other = tmp_path / "elsewhere" / "x"
    other.mkdir(parents=True)
    for path in sorted((path for path in trainer.rglob("*") if path.is_file()), reverse=True):
        copy = other / path.relative_to(trainer)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
        os.utime(copy, (1, 1))
    assert identify(other, tf_version="2.17.1") == first
    assert first.file_name == f"trainer-0.1.0+{first.digest}.tar.gz" and first.version == f"0.1.0+{first.digest}"
    assert len(first.digest) == 12


@pytest.mark.parametrize(
    "path",
    [
        "trainer/__pycache__/task.cpython-310.pyc", "build/lib/trainer/task.py", "dist/trainer-0.1.0.tar.gz", ".git/config", ".env",
        "trainer.egg-info/PKG-INFO", "tests/test_task.py", "trainer/tests/test_model.py", "test_all.py", "conftest.py",
        ".ipynb_checkpoints/a.py", "trainer/task.py~", ".DS_Store", "node_modules/x/y.py",
        "outputs/model/summary.json", "logs/train/events.out.tfevents.1", "checkpoints/best.index",
    ],
)  # fmt: skip
def test_what_does_not_belong_changes_nothing(trainer: Path, path: str) -> None:
    """Caches, build products, version control, hidden files, tests and a run's outputs are no part of the identity."""
    before = identify(trainer)
    (trainer / path).parent.mkdir(parents=True, exist_ok=True)
    (trainer / path).write_text("anything")
    assert identify(trainer) == before


@pytest.mark.parametrize(
    "path", ["trainer/task.py", "requirements.txt", "MANIFEST.in", "trainer/new.py", "trainer/data.json"]
)
def test_what_ships_changes_the_identity(trainer: Path, path: str) -> None:
    """Any change to a file that can ship gives another name."""
    before = identify(trainer)
    with (trainer / path).open("a") as stream:
        stream.write("\n# changed\n")
    assert identify(trainer).digest != before.digest


def test_sources_in_a_folder_named_like_outputs_ship(trainer: Path) -> None:
    """A folder of Python, or one that MANIFEST.in names, is source, also if it is called logs or checkpoints."""
    digests = [identify(trainer).digest]
    for name, text in (("logs/__init__.py", ""), ("checkpoints/base.npz", "x")):
        (trainer / name).parent.mkdir()
        (trainer / name).write_text(text)
        digests.append(identify(trainer).digest)
    with (trainer / "MANIFEST.in").open("a") as stream:
        stream.write("\n# nothing of ours\n")
    digests.append(identify(trainer).digest)
    with (trainer / "MANIFEST.in").open("a") as stream:
        stream.write("graft checkpoints\n")
    (trainer / "checkpoints/base.npz").write_text("y")
    named = identify(trainer).digest
    (trainer / "checkpoints/base.npz").write_text("z")
    assert len({*digests, named, identify(trainer).digest}) == 5
    assert digests[1] == digests[2]


def test_renaming_and_moving_bytes_between_files_changes_the_identity(trainer: Path) -> None:
    """The same bytes under another name, or split elsewhere, are other sources."""
    digests = {identify(trainer).digest}
    (trainer / "trainer" / "model.py").rename(trainer / "trainer" / "modem.py")
    digests.add(identify(trainer).digest)
    (trainer / "a").write_text("bc")
    digests.add(identify(trainer).digest)
    (trainer / "a").rename(trainer / "ab")
    (trainer / "ab").write_text("c")
    digests.add(identify(trainer).digest)
    assert len(digests) == 4


def test_the_image_counts_only_through_its_pin(trainer: Path) -> None:
    """Another TensorFlow gives another package when tf-keras is required, and the same one when it is not."""
    assert identify(trainer, tf_version="2.16").digest != identify(trainer, tf_version="2.17").digest
    (trainer / "requirements.txt").write_text("cloudml-hypertune\n")
    assert identify(trainer, tf_version="2.16") == identify(trainer, tf_version="2.17") == identify(trainer)


@pytest.mark.parametrize(
    ("setup", "cfg", "name", "version"),
    [
        ("setup(name='trainer-pkg', version='1.2')", "", "trainer-pkg", "1.2"),
        ("V = '3.4'\nsetup(name='t', version=V)", "", "t", "3.4"),
        ("from trainer import __version__\nsetup(name='t', version=__version__)", "", "t", "0"),
        ("setup()", "[metadata]\nname = cfg\nversion = 5.0\n", "cfg", "5.0"),
        ("setup(name=open('n').read(), version=compute())", "", "trainer", "0"),
        ("setup(name='t', version='1.0+cpu')", "", "t", "1.0+cpu"),
    ],
)
def test_name_and_version_are_read_without_running_setup(
    tmp_path: Path, setup: str, cfg: str, name: str, version: str
) -> None:
    """Plain values in setup.py and setup.cfg are found; computed ones get a stand-in, and the hash still tells them apart."""
    folder = small(tmp_path / "f", setup=f"from setuptools import setup\n{setup}\n")
    (folder / "trainer" / "__init__.py").write_text("__version__ = '7.7'\n")
    if cfg:
        (folder / "setup.cfg").write_text(cfg)
    found = identify(folder)
    assert (found.name, found.version.rsplit(found.digest)[0].rstrip("+.")) == (name, version)


def test_identifying_writes_nothing_and_runs_nothing(tmp_path: Path) -> None:
    """setup.py is read, never run, and the folder stays as it is."""
    folder = small(tmp_path / "f", setup="raise SystemExit('ran')\n" + PLAIN)
    before = sorted(folder.rglob("*"))
    identify(folder)
    assert sorted(folder.rglob("*")) == before


def test_links_do_not_lead_in_circles(trainer: Path) -> None:
    """A link back to its own folder is passed by; a link to a file counts as that file."""
    plain = identify(trainer)
    (trainer / "trainer" / "loop").symlink_to(trainer, target_is_directory=True)
    (trainer / "broken").symlink_to("nowhere")
    assert identify(trainer) == plain
    (trainer / "trainer" / "linked.py").symlink_to(trainer / "trainer" / "options.py")
    assert identify(trainer) != plain


@settings(max_examples=examples(25, 1000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(setup=st.binary(max_size=120), cfg=st.binary(max_size=80), requirements=st.binary(max_size=120))
def test_no_content_crashes_identify(tmp_path: Path, setup: bytes, cfg: bytes, requirements: bytes) -> None:
    """Garbage in any of the files it reads is identified or refused with a PackageError."""
    folder = tmp_path / "g"
    folder.mkdir(exist_ok=True)
    (folder / "setup.py").write_bytes(setup)
    (folder / "setup.cfg").write_bytes(cfg)
    (folder / "requirements.txt").write_bytes(requirements)
    try:
        assert identify(folder, tf_version="2.17").file_name.endswith(".tar.gz")
    except PackageError as error:
        assert "setup" in str(error)


# build


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The full test trainer, built once with its wheel for TensorFlow 2.17."""
    return build(TRAINERS / "full", tmp_path_factory.mktemp("out"), tf_version="2.17", wheel=True)


def test_the_package_holds_the_trainer_and_nothing_else(built: Built) -> None:
    """Sources, requirements and metadata are inside; no pyproject.toml, tests or caches."""
    assert built.path.name == built.id.file_name and built.id == identify(TRAINERS / "full", tf_version="2.17")
    assert [name for name in names(built.path) if ".egg-info/" not in name] == [
        "MANIFEST.in", "PKG-INFO", "requirements.txt", "setup.cfg", "setup.py", "trainer/__init__.py", "trainer/model.py",
        "trainer/options.py", "trainer/task.py",
    ]  # fmt: skip
    assert f"Version: {built.id.version}" in text(built.path, "PKG-INFO")


def test_tf_keras_is_held_to_the_images_tensorflow(built: Built) -> None:
    """The requirement that ships names the image's minor version; the folder's own file is untouched."""
    assert "tf-keras~=2.17.0" in text(built.path, "requirements.txt")
    assert (TRAINERS / "full" / "requirements.txt").read_text() == "tf-keras\ncloudml-hypertune\n"
    assert built.wheel is not None
    with zipfile.ZipFile(built.wheel) as wheel:
        metadata = next(name for name in wheel.namelist() if name.endswith("/METADATA"))
        assert "tf-keras" in wheel.read(metadata).decode() and "2.17.0" in wheel.read(metadata).decode()


def test_verification_tells_what_the_image_and_the_requirements_bring(built: Built) -> None:
    """TensorFlow comes from the image; hypertune and tf_keras from the requirements; the module imports."""
    assert (built.verified, built.supplied, built.declared, built.warnings) == (
        ("trainer.task",), ("tensorflow",), ("hypertune", "tf_keras"), (),
    )  # fmt: skip


def stamps(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_a_second_build_is_a_no_op(trainer: Path, tmp_path: Path) -> None:
    """A file built without verification is verified when that is asked for; after that it is only found. None writes to the
    trainer's folder.
    """
    sources, out = stamps(trainer), tmp_path / "out"
    assert build(trainer, out, verify=False).verified == ()
    first = build(trainer, out)
    assert first.verified == ("trainer.task",)
    files = stamps(out)
    second = build(trainer, out)
    assert not second.fresh and stamps(out) == files and second.supplied == first.supplied
    assert sorted(path.name for path in files) == [first.path.name, f"{first.path.name}.json"]
    assert stamps(trainer) == sources


def test_a_damaged_file_is_built_again(trainer: Path) -> None:
    """A file that is not what was built is replaced with the same bytes, and an unreadable record is no obstacle; dist/ of the
    trainer may hold them.
    """
    first = build(trainer, trainer / "dist", verify=False)
    assert first.id == identify(trainer)
    data = first.path.read_bytes()
    first.path.write_bytes(data[:100])
    again = build(trainer, trainer / "dist", verify=False)
    assert again.fresh and again.path.read_bytes() == data
    first.path.with_name(first.path.name + ".json").write_text("{")
    assert build(trainer, trainer / "dist", verify=False).fresh


def test_builds_at_the_same_time_agree(trainer: Path, tmp_path: Path) -> None:
    """Two builds into one folder both succeed and leave one whole file."""
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda _: build(trainer, tmp_path / "out", verify=False), range(2)))
    assert made[0].path == made[1].path and names(made[0].path)
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_tests_caches_and_pyproject_stay_out(tmp_path: Path) -> None:
    """What setuptools would add by itself, and what would make pip need PyPI, is not in the archive."""
    files = dict.fromkeys(("tests/test_task.py", "trainer/tests/test_in.py", "test_x.py"), "")
    files["pyproject.toml"] = "[tool.ruff]\nline-length = 120\n"
    files["MANIFEST.in"] = "recursive-include tests *\ninclude pyproject.toml *.pyc\n"
    folder = small(tmp_path / "f", files=files)
    found = names(build(folder, tmp_path / "out", verify=False).path)
    assert not [name for name in found if "test" in name or "pyproject" in name]


def test_own_settings_in_setup_cfg_are_kept(tmp_path: Path) -> None:
    """An existing tag and other sections of setup.cfg stay; the hash comes after them."""
    folder = small(tmp_path / "f")
    (folder / "setup.cfg").write_text("[egg_info]\ntag_build = .dev1\n[metadata]\nlicense = MIT\n")
    made = build(folder, tmp_path / "out", verify=False)
    assert f"Version: 0.1.0.dev1+{made.id.digest}" in text(made.path, "PKG-INFO")
    assert "license = MIT" in text(made.path, "setup.cfg")


# requirements


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tf-keras", "tf-keras~=2.17.0"),
        ("tf_keras>=2.15", "tf_keras~=2.17.0"),
        ("  tf-keras   # Keras 2", "  tf-keras~=2.17.0   # Keras 2"),
        ("tf-keras==2.15.0", "tf-keras~=2.17.0"),
        ("tf-keras==2.17.0", "tf-keras==2.17.0"),
        ("tf-keras~=2.17.0", "tf-keras~=2.17.0"),
        ('tf-keras; python_version > "3.9"', 'tf-keras~=2.17.0; python_version > "3.9"'),
        ("# tf-keras", "# tf-keras"),
        ("tf-keras-vis", "tf-keras-vis"),
        ("-r other.txt", "-r other.txt"),
    ],
)
def test_the_tf_keras_line_is_rewritten(tmp_path: Path, line: str, expected: str) -> None:
    """Only the tf-keras requirement changes, with its marker and comment kept, and line ends too."""
    folder = small(tmp_path / "f")
    written = f"numpy\r\n{line}\r\n".encode()
    (folder / "requirements.txt").write_bytes(written)
    staged = gather(folder, "2.17").new_bytes.get("requirements.txt", written)
    assert staged == f"numpy\r\n{expected}\r\n".encode()


def test_requirements_inside_setup_py_and_setup_cfg_are_rewritten(tmp_path: Path) -> None:
    """A tf-keras written into setup() or into setup.cfg is held as well."""
    setup = SETUP.format(more=", install_requires=['é', 'tf-keras', 'cloudml-hypertune']")
    found = gather(small(tmp_path / "f", setup=setup), "2.16").new_bytes["setup.py"]
    assert "'é', 'tf-keras~=2.16.0', 'cloudml-hypertune'" in found.decode()
    cfg = {"setup.cfg": "[options]\ninstall_requires =\n    tf-keras\n    numpy\n"}
    assert b"tf-keras~=2.16.0" in gather(small(tmp_path / "g", files=cfg), "2.16").new_bytes["setup.cfg"]


@pytest.mark.parametrize(
    "pin", ["tensorflow==2.8.0", "tensorflow-gpu<2.17", "protobuf~=3.20.0", "tensorflow-cpu @ https://x/y.whl"]
)
def test_pins_that_fight_the_image_are_refused(tmp_path: Path, pin: str) -> None:
    """A pinned tensorflow or protobuf is refused for a known image, with file, line and what to do; else it is a warning."""
    folder = small(tmp_path / "f", files={"requirements.txt": f"numpy\n{pin}\n"})
    (refusal,) = gather(folder, "2.17").refusals
    assert refusal.startswith("requirements.txt:2: ") and refusal.endswith("remove the line")
    (warning,) = gather(folder, None).warnings
    assert warning.startswith("requirements.txt:2: ")


@pytest.mark.parametrize("line", ["tensorflow", "tensorflow>=2.10", "protobuf"])
def test_open_requirements_of_what_the_image_brings_are_warned_of(tmp_path: Path, line: str) -> None:
    """They do no harm today, so they are warnings."""
    (warning,) = gather(small(tmp_path / "f", files={"requirements.txt": f"{line}\n"}), "2.17").warnings
    assert "The image brings its own" in warning


def test_tf_keras_for_a_tensorflow_before_it_existed_is_refused(trainer: Path, tmp_path: Path) -> None:
    """There is no tf-keras for TensorFlow 2.12."""
    with pytest.raises(PackageError, match="no release for TensorFlow 2.12"):
        build(trainer, tmp_path / "out", tf_version="2.12")
    assert not (tmp_path / "out").exists()


def test_an_output_folder_inside_the_sources_is_refused(trainer: Path) -> None:
    """Its files would change the next build's hash."""
    with pytest.raises(PackageError, match="inside the trainer's folder"):
        build(trainer, trainer / "out", verify=False)


def test_an_output_folder_that_cannot_be_made_is_refused(trainer: Path, tmp_path: Path) -> None:
    """A file in the place of the folder is an error with its name."""
    (tmp_path / "file").write_text("")
    with pytest.raises(PackageError, match="cannot be written"):
        build(trainer, tmp_path / "file" / "out", verify=False)


def test_the_record_is_plain_json(built: Built) -> None:
    """What the first build found stands beside the file."""
    record = json.loads(built.path.with_name(built.path.name + ".json").read_text())
    assert record["verified"] == ["trainer.task"] and record["wheel"] == (built.wheel.name if built.wheel else "")


# the prebuilt images' Python


def python310() -> str:
    """A Python 3.10, the prebuilt images' version: on the path, or among pyenv's (whose shim may be switched off)."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    candidates = [shutil.which("python3.10"), *(str(path) for path in sorted(versions.glob("3.10.*/bin/python")))]
    for candidate in filter(None, candidates):
        command = [candidate, "-c", "import ensurepip, sys; print(sys.version_info[:2])"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.stdout.strip() == "(3, 10)":
            return candidate
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail("no Python 3.10 here, and CI must try the image's version")
    pytest.skip("no Python 3.10 here")


@pytest.mark.whole
def test_it_installs_in_a_python_3_10_environment(built: Built, tmp_path: Path) -> None:
    """As in a container without egress: pip with no index and no dependencies installs the sdist, and the module is found."""
    subprocess.run([python310(), "-m", "venv", str(tmp_path / "venv")], check=True, timeout=300)
    python = str(tmp_path / "venv" / "bin" / "python")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PIP_NO_INDEX": "1"}
    command = [python, "-m", "pip", "install", "--no-deps", str(built.path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    code = "import importlib.metadata, importlib.util\n"
    code += "print(importlib.metadata.version('trainer'), importlib.util.find_spec('trainer.task') is not None)"
    shown = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert shown.stdout.split() == [built.id.version, "True"]
