"""What bench/ does in Python: the measurements run, on the CPU and in small, and the pages say what was measured."""

import array
import json
import os
import subprocess
import sys
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path

import overhead_section
import training_page

BENCH = Path(__file__).resolve().parent
needs_torch = unittest.skipUnless(find_spec("torch"), "PyTorch is not installed")


def measure(script, *arguments):
    """What the script wrote."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "results", "output.json")
        command = [sys.executable, BENCH / script, *arguments, "--output", output]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        if done.returncode:
            raise AssertionError(done.stdout + done.stderr)
        return json.loads(output.read_text())


class Overhead(unittest.TestCase):
    @needs_torch
    def test_measures_on_the_cpu(self):
        document = measure("peers/overhead.py", "--device", "cpu", "--quick")
        for source in ("Greyhound", "torch"):
            for name, result in document["calls"][source].items():
                with self.subTest(source=source, name=name):
                    self.assertGreater(result.get("us", 0), 0, result)
        self.assertEqual([name for name, result in document["parts"].items() if "error" in result], [])
        text = overhead_section.render(document)
        for name in overhead_section.TARGETS:
            self.assertIn(overhead_section.call_text(name), text)

    def test_targets_are_met_or_not(self):
        calls = {
            "functional.cross_entropy": {"us": 25.01, "p90_us": 30.0},
            "cross_entropy_with_grad_kernel": {"us": 12.0, "p90_us": 13.0},
        }
        document = {
            "context": {"torch": "2", "python": "3", "commit": "c" * 40, "date": "2000-01-01", "quick": False},
            "shape": [1, 2],
            "calls": {"Greyhound": calls, "torch": {"functional.cross_entropy": {"error": "ValueError: no"}}},
            "parts": {},
            "unavailable": {"Liger": "ModuleNotFoundError: no"},
        }
        text = overhead_section.render(document)
        self.assertIn("| Greyhound | `functional.cross_entropy` | 25.0 | 30.0 | 25 | **no** |", text)
        self.assertIn("| Greyhound | `cross_entropy_with_grad_kernel` | 12.0 | 13.0 | 12 | yes |", text)
        self.assertIn("| torch | `functional.cross_entropy` | failed: `ValueError: no` |", text)
        self.assertIn("Liger (`ModuleNotFoundError: no`)", text)


def document_of(*runs):
    """Results of runs (loss, seed, what each of its losses is off by)."""
    steps = training_page.FIRST + 4
    return {
        "context": {"torch": "2", "commit": "c" * 40, "date": "2000-01-01"},
        "size": {"layers": 1, "width": 2, "heads": 1, "context": 4, "vocab": 5, "batch": 6, "parameters": 7},
        "steps": steps,
        "runs": [
            {
                "loss": loss,
                "seed": seed,
                "losses": [9 - i / steps + off for i in range(steps)],
                "validation_loss": 8 + off,
                "step_ms": 10 - off,
                "peak_bytes": 3e9,
                "at_rest_bytes": 1e9,
            }
            for loss, seed, off in runs
        ],
        "unavailable": {},
    }


class Training(unittest.TestCase):
    @needs_torch
    def test_trains_on_the_cpu(self):
        with tempfile.TemporaryDirectory() as folder:
            tokens = Path(folder, "tokens.bin")
            text = Path(BENCH, "report.py").read_bytes()  # each byte is a token
            tokens.write_bytes(array.array("H", list(text)).tobytes())
            flags = ("--device", "cpu", "--size", "tiny", "--steps", "30", "--tokens", tokens)
            document = measure("gpt/train.py", *flags)
        runs = training_page.runs_of_seed_one(document)
        self.assertLessEqual({"torch fp32", "torch bf16", "Greyhound", "Greyhound, in place"}, set(runs))
        for name, run in runs.items():
            with self.subTest(name):
                # The same weights, the same batch, the same routine for the curve; later, each its own gradient.
                self.assertEqual(run["losses"][0], runs["torch fp32"]["losses"][0])
                self.assertLess(run["losses"][-1], run["losses"][0])
        # Both ways compute the same gradient bit for bit on the CPU, and so the same weights.
        self.assertEqual(runs["Greyhound"]["losses"], runs["Greyhound, in place"]["losses"])
        self.assertEqual(len(training_page.seeds(document)), 3)
        self.assertLess(training_page.distance(runs["Greyhound"], runs["torch fp32"]), training_page.noise(document))
        self.assertIn("images/cpu-training-difference.svg", training_page.render({"cpu": document}))

    def test_noise_is_what_the_page_says_it_is(self):
        reference = [("torch fp32", 1, 0.0), ("torch fp32", 2, 0.5), ("torch fp32", 3, 0.75), ("torch fp32", 1, 0.125)]
        document = document_of(*reference, ("Greyhound", 1, 0.25), ("Liger", 1, -0.5))
        self.assertEqual(training_page.noise(document), 0.25)
        text = training_page.render({"gpu": document})["training.md"]
        self.assertIn("The two closest of 3 seeds of `torch fp32` are 0.25 apart", text)
        self.assertIn("`torch fp32` run again with the same seed is 0.12 from itself", text)
        self.assertIn("`Greyhound` is 0.25 from `torch fp32`: the same within noise", text)
        self.assertIn("`Liger` is 0.5 from `torch fp32`: **not the same within noise**", text)
        self.assertIn("| torch fp32 | 10.0 | 1.00 | 3.00 | 2.00 | 8.0000 | +0.0000 |", text)
        self.assertIn("| torch fp32, seed 2 | 9.5 | 0.95 | 3.00 | 2.00 | 8.5000 | +0.5000 |", text)
        self.assertIn("| torch fp32, again | 9.9 | 0.99 |", text)

    def test_a_run_that_stopped_early_still_makes_a_page(self):
        self.assertEqual(list(training_page.render({})), ["training.md"])
        self.assertEqual(list(training_page.render({"gpu": document_of()})), ["training.md"])
        for runs in ([("torch fp32", 1, 0.0)], [("torch fp32", 1, 0.0), ("Greyhound", 1, 0.1)]):
            text = training_page.render({"gpu": document_of(*runs)})["training.md"]
            self.assertNotIn("within noise.\n", text.partition("## gpu")[2])


if __name__ == "__main__":
    unittest.main()
