"""A real model, where the package with its weights is installed, and the examples."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import BOUNDS, relative_error

EXAMPLES = Path(__file__).parents[1] / "examples"
PREDICTED = 256

for name in ("torch", "gguf", "tokenizers", "tqdm"):
    pytest.importorskip(name, reason=f"{name} is not installed")


@pytest.fixture(scope="module")
def script(request: pytest.FixtureRequest) -> Any:
    """Import the example as a module."""
    patch = pytest.MonkeyPatch()
    request.addfinalizer(patch.undo)
    patch.syspath_prepend(EXAMPLES)
    import smollm2_perplexity

    try:
        smollm2_perplexity.find_gguf()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    return smollm2_perplexity


def test_every_layer_is_within_the_bounds(script: Any) -> None:
    import torch

    worst = dict.fromkeys(BOUNDS, 0.0)
    candidates = {precision: script.attend_int8(precision) for precision in BOUNDS}

    def attend(q: Any, k: Any, v: Any) -> Any:
        want = script.attend_float64(q, k, v)
        for precision, candidate in candidates.items():
            error = relative_error(candidate(q, k, v), want.double().numpy())
            worst[precision] = max(worst[precision], error)
        return want

    model = script.SmolLm2(script.find_gguf(), torch.device("cpu"))
    ids = model.encode(script.TEXT.read_text().strip())[:PREDICTED]
    sequences = list(script.windows(ids, model.first_token, PREDICTED))
    with torch.inference_mode():
        value = script.perplexity(model, sequences, script.Row("test", attend, None))
    assert value < 12  # 153 with the wrong rotary convention
    for precision, bound in BOUNDS.items():
        assert 0 < worst[precision] < bound


def test_table_of_perplexities(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    results = {row.name: 10.0 for row in script.ROWS}
    assert script.print_table(results)
    assert "| int8, qattn high | 10.0000 | +0.000 % | +0.000 % |" in capsys.readouterr().out
    assert not script.print_table({**results, "int8, qattn high": 10.11})
    assert not script.print_table({**results, "int8, qattn fast": 9.79})


def test_real_tensors_are_plotted(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    picture = tmp_path / "picture.png"
    command = [sys.executable, str(EXAMPLES / "real_tensors.py"), "--out", str(picture)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert picture.read_bytes().startswith(b"\x89PNG") and "layer 29" in done.stdout
