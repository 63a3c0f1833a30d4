"""Audits from Python: the README's example stays as short as it is, and nothing waits for torch."""

import subprocess
import sys
from pathlib import Path

import fedassay
import pytest

README = Path(fedassay.__file__).resolve().parent / "README.md"


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not README.is_file(), reason="an installed wheel has no README.md")
def test_the_readmes_example_is_six_lines():
    blocks = [block.partition("```")[0] for block in README.read_text(encoding="utf-8").split("```python\n")[1:]]
    (code,) = [block for block in blocks if "def noisy" in block]
    assert "fedassay.audit_mechanism(" in code
    assert len([line for line in code.splitlines() if line.strip()]) <= 6


@pytest.mark.simulations
def test_a_mechanism_is_audited_without_torch():
    code = "import sys, fedassay\n"
    code += "claim = fedassay.Claim.stated(delta=1e-5, mu=1.0)\n"
    code += "done = fedassay.audit_mechanism(lambda x, rng: x + rng.normal(), claim, inputs=(0.0, 1.0), trials=100)\n"
    code += "fedassay.audit_scores([1.0, 2.0], [0.0, 1.0], claim, design='independent')\n"
    code += "fedassay.ball_neighbours(2, radius=1.0)\n"
    code += "assert isinstance(done, fedassay.Finding)\n"
    code += "assert fedassay.judge(claim, done.measurement) == done\n"
    code += "print([name for name in ('torch', 'pandas', 'sklearn', 'pydantic', 'typer') if name in sys.modules])\n"
    assert python(code) == "[]\n"
