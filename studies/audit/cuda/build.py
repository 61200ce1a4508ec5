"""A library of CUDA kernels for the GPU of this machine, and calls with arrays of NumPy."""

import ctypes
import functools
import shutil
import subprocess
from pathlib import Path

import numpy as np

from checkpoint import UserError

HERE = Path(__file__).parent
TYPES = "F16", "BF16", "FP8_E4M3", "FP8_E5M2"
FLAGS = [  # FlashInfer's own
    *("-shared", "-w", "-std=c++17", "-O3", "-DNDEBUG", "-use_fast_math"),
    *("--compiler-options=-fPIC", "--expt-relaxed-constexpr"),
    *(f"-DFLASHINFER_ENABLE_{name}" for name in TYPES),
]
PARTS = [  # of FlashInfer's wheel
    "flashinfer/data/include",
    "flashinfer/data/cccl/cub/cub",
    "flashinfer/data/cccl/thrust/thrust",
    "flashinfer/data/cccl/libcudacxx/include",
]


def includes_of(wheel):
    """Where an unpacked FlashInfer has its headers."""
    data = wheel / "flashinfer" / "data"
    cccl = data / "cccl"
    return data / "include", cccl / "cub", cccl / "thrust", cccl / "libcudacxx" / "include"


@functools.cache
def gpu():
    """Its name and architecture. UserError without an NVIDIA GPU, or without CUDA's compiler."""
    missing = [name for name in ("nvidia-smi", "nvcc") if shutil.which(name) is None]
    if missing:
        problem = f"found no {' and no '.join(missing)}, so these kernels can't be run here"
        raise UserError(f"{problem}; README.md of the audit has what an NVIDIA H200 gave")
    query = ["nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"nvidia-smi found no GPU: {done.stdout.strip()}")
    name, capability = done.stdout.splitlines()[0].split(", ")
    return name, f"sm_{capability.replace('.', '')}"


def command(source, target, architecture, includes):
    """What builds a library. given/ comes first, so its cuRAND is found, and no other."""
    folders = [f"-I{folder}" for folder in (HERE / "given", *includes)]
    output = ["-o", str(target)]
    return ["nvcc", *FLAGS, f"-arch={architecture}", *folders, str(HERE / source), *output]


class Library:
    """The functions of a .cu file. They take arrays, ints and floats, and return an error or 0."""

    def __init__(self, folder, source, includes):
        _, architecture = gpu()
        target = folder / f"{Path(source).stem}.so"
        subprocess.run(command(source, target, architecture, includes), check=True)
        self.functions = ctypes.CDLL(str(target))

    def call(self, name, *args):
        error = getattr(self.functions, name)(*map(c_type, args))
        if error:
            raise RuntimeError(f"{name} ended with CUDA's error {error}")


def c_type(value):
    if isinstance(value, np.ndarray):
        return np.ctypeslib.as_ctypes(value)
    return ctypes.c_float(value) if isinstance(value, float) else ctypes.c_int(value)
