"""llama.cpp: its samplers and its acceptance, with guesses and without, on a CPU.

It draws from the target and keeps a guess that is the same, with every sampler that a
request may ask for. So what has to be shown is that the state of a sampler, such as its
penalties, is the same as without guesses. std::mt19937 is replaced, see given_random.h, and
so is the network.
"""

import ctypes
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from checkpoint import UserError
from enumeration import total_variation, values
from studies.audit import wheels
from studies.audit.harness import K, N, P, Q, texts_of

PACKAGE, VERSION = "llama-cpp-python", "0.3.36"  # whose sources hold those of llama.cpp
COMMIT = "0c1e57098"  # of llama.cpp, says its changelog
HERE = Path(__file__).parent
OFF = "BUILD_TESTS", "BUILD_TOOLS", "BUILD_EXAMPLES", "BUILD_SERVER", "BUILD_APP", "OPENSSL"
OPTIONS = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=OFF"]
OPTIONS += [f"-DLLAMA_{name}=OFF" for name in OFF]
LIBRARIES = "-lllama-common", "-lllama", "-lggml-base"
DRAW = ctypes.CFUNCTYPE(ctypes.c_double)
N_CHECKS = 3_000


class Sampler(NamedTuple):
    """Texts of N tokens, with K guesses and without."""

    name: str
    kind: str
    library: "Library"

    def measured(self):
        fast, slow = (self.texts(k) for k in (K, 0))
        if self.kind == "plain":
            slow = texts_of(Q, N)
        return {"distance": total_variation(fast, slow)}

    def texts(self, k):
        return values.output_distribution(partial(self.library.text, self.kind, k), N_CHECKS)


def llama(folder):
    library = built(folder)
    for kind in "plain", "temperature", "top-k", "penalties", "defaults":
        yield Sampler(f"common_sampler_sample_and_accept_n, K = {K}, {kind}", kind, library)


class Library:
    """rounds.cpp, with a vocabulary."""

    def __init__(self, path, vocabulary):
        self.functions = ctypes.CDLL(str(path))
        if not self.functions.load(str(vocabulary).encode()):
            raise RuntimeError(f"llama.cpp can't load {vocabulary}")
        self.logits = np.log(Q).astype(np.float32)
        self.guesses = P.argmax(axis=1).astype(np.int32)

    def text(self, kind, k, draw):
        """N tokens, in rounds of k guesses, or one by one if k is 0."""
        found = np.empty(N, np.int32)
        logits, guesses, out = map(np.ctypeslib.as_ctypes, (self.logits, self.guesses, found))
        if not self.functions.text(DRAW(draw), kind.encode(), logits, guesses, N, k, out):
            raise RuntimeError(f"llama.cpp has no sampler for {kind}")
        return found


# ---- The build ----


def built(folder):
    """The `Library`. Its first build takes a quarter of an hour on two cores."""
    missing = [name for name in ("cmake", "c++") if shutil.which(name) is None]
    if missing:
        raise UserError(f"found no {' and no '.join(missing)}, to build llama.cpp; install them")
    if sys.platform != "linux":  # elsewhere the linker keeps llama.cpp's own functions
        raise UserError(f"llama.cpp gets its numbers on Linux alone; found {sys.platform}")
    sources = wheels.sources(folder, PACKAGE, VERSION) / "vendor" / "llama.cpp"
    build = sources.with_name("build")
    run("cmake", "-S", sources, "-B", build, *OPTIONS)
    run("cmake", "--build", build, "--target", "llama-common", "--parallel", os.cpu_count())
    includes = [f"-I{sources / name}" for name in ("include", "ggml/include", "common", "src")]
    compile = "c++", "-std=c++17", "-O1", "-fPIC", *includes
    sampler = build / "sampler.o"
    given = "-include", HERE / "given_random.h"
    run(*compile, *given, "-c", sources / "src" / "llama-sampler.cpp", "-o", sampler)
    target = build / "rounds.so"
    linked = f"-L{build / 'bin'}", f"-Wl,-rpath,{build / 'bin'}", *LIBRARIES
    run(*compile, *given, "-shared", HERE / "rounds.cpp", sampler, *linked, "-o", target)
    return Library(target, sources / "models" / "ggml-vocab-gpt-2.gguf")


def run(*command):
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)


WHEELS = {"llama.cpp": (COMMIT, llama)}
