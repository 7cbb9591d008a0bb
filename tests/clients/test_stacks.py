"""Libraries and programs that speak HTTP, each with its own idea of proxies and authorities, reach the local Vertex."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clients.conftest import Run
from tests.clients.kit import program, python

PROGRAMS = Path(__file__).with_name("programs")
URL = "https://storage.googleapis.com/storage/v1/b/staging-bucket"
_LINE = f"import sys; url = {URL!r}\n"
_AIO = """
import aiohttp, asyncio

async def main():
    async with aiohttp.ClientSession(**{given}) as session, session.get(url) as answer:
        print(await answer.text())

asyncio.run(main())
"""
_GCSFS = "import gcsfs; print(gcsfs.GCSFileSystem(project='my-project').ls(''))"
_CURL = """
import pycurl
asked = pycurl.Curl()
asked.setopt(pycurl.URL, url)
asked.setopt(pycurl.WRITEFUNCTION, sys.stdout.buffer.write)
asked.perform()
"""
_STREAM = """
import asyncio

async def main():
    read, write = await asyncio.open_connection('storage.googleapis.com', 443, ssl=True)
    write.write(b'GET /storage/v1/b/staging-bucket HTTP/1.1\\r\\nHost: storage.googleapis.com\\r\\nConnection: close\\r\\n\\r\\n')
    print((await read.read()).decode())

asyncio.run(main())
"""
_HTTP_CLIENT = "import http.client as c; h = c.HTTPSConnection('storage.googleapis.com'); h.request('GET', url); print(h.getresponse().read())"
_NODE = "require('https').get(process.argv[1], got => got.pipe(process.stdout))"
_FETCH = "fetch(process.argv[1]).then(got => got.text()).then(console.log)"
_PERL = "use HTTP::Tiny; my $got = HTTP::Tiny->new(verify_SSL => 1)->get($ARGV[0]); die $got->{content} if !$got->{success}; print $got->{content}"
_RUBY = "require 'net/http'; puts Net::HTTP.get(URI(ARGV[0]))"


@dataclass(frozen=True)
class Stack:
    """One way to speak HTTP.

    Args:
        name: What it is called.
        code: Of a Python program, "" for another one.
        modules: What that program needs.
        client: The environment that has them.
        words: Of another program's command; the first one is looked up.
        fails: What it says where it cannot be led here; it leads nowhere else.
    """

    name: str
    code: str = ""
    modules: tuple[str, ...] = ()
    client: str = "stacks"
    words: tuple[str, ...] = ()
    fails: str = ""


STACKS = (
    Stack("http.client", _HTTP_CLIENT),
    Stack("urllib", "import urllib.request as u; print(u.urlopen(url).read())"),
    Stack("asyncio streams", _STREAM),
    Stack("uvloop's streams", f"import uvloop; uvloop.install()\n{_STREAM}", ("uvloop",)),
    Stack("aiohttp on uvloop", f"import uvloop; uvloop.install()\n{_AIO}".replace("{given}", "{}"), ("aiohttp", "uvloop")),
    Stack("requests", "import requests; print(requests.get(url).text)", ("requests",)),
    Stack("urllib3", "import urllib3; print(urllib3.PoolManager().request('GET', url).data)", ("urllib3",)),
    Stack("httpx", "import httpx; print(httpx.get(url).text)", ("httpx",)),
    Stack("httplib2", "import httplib2; print(httplib2.Http().request(url))", ("httplib2",)),
    Stack("aiohttp", _AIO.replace("{given}", "{}"), ("aiohttp",)),
    Stack("aiohttp with trust_env", _AIO.replace("{given}", "{'trust_env': True}"), ("aiohttp",)),
    Stack("pycurl", _CURL, ("pycurl",), fails="SSL certificate"),
    Stack("gcsfs 0.7.1", _GCSFS, ("gcsfs",), "old-gcsfs"),
    Stack("curl", words=("curl", "--silent", URL)),
    Stack("GNU wget", words=("wget", "-qO-", URL)),
    Stack("Node fetch", words=("node", "-e", _FETCH, URL)),
    Stack("Node https", words=("node", "-e", _NODE, URL)),
    Stack("Java HttpClient", words=("java", str(PROGRAMS / "Fetch.java"), URL)),
    Stack("Go", words=("go", "run", str(PROGRAMS / "fetch.go"), URL)),
    Stack("Perl", words=("perl", "-e", _PERL, URL)),
    Stack("Ruby", words=("ruby", "-e", _RUBY, URL)),
)  # fmt: skip
_SLOW = ("Java HttpClient", "gcsfs 0.7.1")


def _modules_of_perl(run: Run) -> None:
    if run("perl", "-MIO::Socket::SSL", "-e", "1", check=False).returncode:
        pytest.skip("Perl has no IO::Socket::SSL here, without which HTTP::Tiny speaks no TLS")


@pytest.mark.parametrize(
    "stack",
    [pytest.param(one, id=one.name, marks=[pytest.mark.whole] if one.name in _SLOW else []) for one in STACKS],
)
def test_a_stack_reaches_the_local_vertex(stack: Stack, run: Run) -> None:
    """By the real name of Cloud Storage, whether the library reads proxy variables or not, the local bucket is found, and TLS is verified."""
    if stack.code:
        own = python(*stack.modules, client=stack.client) if stack.modules else sys.executable
        done = run(own, "-c", _LINE + stack.code, check=not stack.fails)
    else:
        if stack.name == "Perl":
            _modules_of_perl(run)
        if not shutil.which(stack.words[0]):
            pytest.skip(f"{stack.words[0]} is not on this machine, and make test-clients does not install it")
        done = run(program(stack.words[0], stack.client), *stack.words[1:])
    assert stack.fails in done.stderr if stack.fails else "staging-bucket" in done.stdout


@pytest.mark.parametrize(
    "name", ["http.client", "asyncio streams", "uvloop's streams", "aiohttp on uvloop", "Node fetch", "Node https"]
)
def test_what_asks_no_proxy_is_refused_other_hosts(name: str, run: Run) -> None:
    """A host that the proxy refuses is refused to a library that asks no proxy, with the sentence of the proxy."""
    stack = next(one for one in STACKS if one.name == name)
    words = stack.words or ("python", "-c", _LINE + stack.code)
    own = python(*stack.modules, client=stack.client) if stack.modules else sys.executable
    first = program(words[0], stack.client) if stack.words else own
    done = run(first, *(one.replace("storage.googleapis.com", "example.com") for one in words[1:]), check=False)
    assert done.returncode == 1 and "example.com is not a host of Google's APIs and is not allowed" in done.stderr


def test_the_certificate_is_for_googles_names_alone(run: Run) -> None:
    """The port that names lead to answers TLS for Google's names, and nothing without a name or for another one."""
    code = """
import os, socket, ssl
for name in ("storage.googleapis.com", "example.com", None):
    context = ssl.create_default_context()
    context.check_hostname = name is not None
    try:
        with socket.create_connection(tuple(os.environ["VERTEXRIG_NAMES"].split(":"))) as plain:
            with context.wrap_socket(plain, server_hostname=name) as made:
                print(dict(made.getpeercert()["subjectAltName"]))
    except ssl.SSLError:
        print("refused")
"""
    done = run(sys.executable, "-c", code)
    assert done.stdout.splitlines() == ["{'DNS': '*.googleapis.com'}", *["refused"] * 2]
