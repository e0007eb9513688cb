"""Recorded outputs of the reference implementation, and the comparison with them."""

from pathlib import Path

GOLDEN_CHECKPOINT = Path(__file__).parent / "qwen3-tts-tiny"
CONTRACT = Path(__file__).parent / "contract"
