"""Where the tests of Triton kernels run: on CUDA, or through Triton's interpreter on the CPU.

Without a GPU, TRITON_INTERPRET=1 runs the same kernels, slowly, where triton is installed.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and find_spec("triton") is not None
DEVICE = "cpu" if INTERPRETED else "cuda"
MARKS = [
    pytest.mark.skipif(
        not (INTERPRETED or torch.cuda.is_available()),
        reason="no CUDA device and no TRITON_INTERPRET=1 here",
    ),
    # The interpreter computes with numpy, which remarks on infinities.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION"),
]
