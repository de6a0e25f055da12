"""Packed numbers: as Python wrote them, JavaScript reads them."""

from base64 import b64decode

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from node import evaluate, needs_node

from advnorm.report.packing import pack


@given(st.lists(st.integers(0, 2**24 - 1), max_size=40))
def test_numbers_are_bits_one_after_the_other(numbers):
    packed = pack(np.array(numbers, dtype=np.int64))
    width = max([1, *(number.bit_length() for number in numbers)])
    bits = "".join(f"{number:0{width}b}" for number in numbers)
    read = "".join(f"{byte:08b}" for byte in b64decode(packed["data"]))
    assert (packed["width"], packed["count"]) == (width, len(numbers))
    assert read[: len(bits)] == bits and not read[len(bits) :].strip("0")
    assert len(read) - len(bits) < 8


@needs_node
def test_node_reads_every_width():
    random = np.random.default_rng(0)
    lists = [random.integers(0, 2**width, 1001).tolist() for width in range(1, 25)]
    lists += [[], [0], [0, 0, 0], [2**24 - 1]]
    packed = [pack(np.array(numbers, dtype=np.int64)) for numbers in lists]
    assert evaluate("values.map(packed => [...unpack(packed)])", packed) == lists


def test_a_width_that_32_bits_cannot_hold_is_never_needed(maker):
    run = maker.run("a")
    result = maker.tested(run, "clean", labels=[0], predictions=[0], samples=[2**24])
    from advnorm.report.verdict_arrays import load_verdicts

    with pytest.raises(ValueError, match=r"clean\.json is damaged .*16777216"):
        load_verdicts(run, result)
