"""What a model can run with, by name: runtimes, precisions and devices, told without torch, whose import takes long."""

import importlib.util
import os
import re

from tophit.errors import UsageError

PRECISIONS = ("fp32", "bf16")
EXPORT = ("onnx", "onnxscript")
# in order of preference when equally fast: which packages each needs, which precisions it supports
RUNTIMES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "onnxruntime": ((*EXPORT, "onnxruntime"), ("fp32",)),
    "openvino": ((*EXPORT, "openvino"), PRECISIONS),
    "torch": ((), PRECISIONS),
    "torch-contiguous": ((), PRECISIONS),
    "compiled": ((), PRECISIONS),
}
_DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d+)?")


def check_device(name: str) -> None:
    """Refuse a word that names no device; whether it is there only torch can say."""
    if not _DEVICE.fullmatch(name):
        raise UsageError(f"There is no device '{name}'; choices: auto, cpu, cuda, cuda:1, mps.")


def check_runtime(name: str | None, precision: str = "fp32") -> None:
    """Raise if a runtime is not installed or can't compute in a precision; None stands for the fastest."""
    if precision not in PRECISIONS:
        raise UsageError(f"There is no precision '{precision}'; choices: {', '.join(PRECISIONS)}.")
    if name is None:
        return
    if name not in RUNTIMES:
        raise UsageError(f"There is no runtime '{name}'; choices: {', '.join(RUNTIMES)}.")
    packages, precisions = RUNTIMES[name]
    if not installed(packages):
        extra = "openvino" if "openvino" in packages else "onnx"
        raise UsageError(f"The runtime {name} is not installed; install it with: pip install 'tophit[{extra}]'")
    if precision not in precisions:
        raise UsageError(f"The runtime {name} supports {', '.join(precisions)}, not {precision}.")


def named_runtime(name: str | None = None) -> str | None:
    """Return the runtime that a call or ``TOPHIT_RUNTIME`` names (``TOPHIT_ENGINE`` is its older name)."""
    return name or os.environ.get("TOPHIT_RUNTIME") or os.environ.get("TOPHIT_ENGINE") or None


def runtimes_at_hand(precision: str = "fp32") -> list[str]:
    """Return the runtimes that can be used here without compiling; ``TOPHIT_ONNX=0`` leaves out exports."""
    return [
        name
        for name, (packages, precisions) in RUNTIMES.items()
        if precision in precisions and installed(packages) and name != "compiled"
    ]


def export_installed() -> bool:
    """Return whether models can be exported to ONNX."""
    return all(importlib.util.find_spec(name) for name in EXPORT)


def onnx_installed() -> bool:
    """Return whether ONNX export and onnxruntime are available; ``TOPHIT_ONNX=0`` turns them off."""
    return installed((*EXPORT, "onnxruntime"))


def installed(packages: tuple[str, ...]) -> bool:
    """Return whether packages are installed, and not turned off by ``TOPHIT_ONNX=0``."""
    if packages and os.environ.get("TOPHIT_ONNX") == "0":
        return False
    return all(importlib.util.find_spec(name) for name in packages)
