"""What processes of a grid do; a module of its own, so that a new process finds it."""

import os


def square(number: int) -> int:
    if number == 2:
        raise ValueError("two is not wanted")
    return number * number


def die(number: int) -> int:
    if number == 1:
        os._exit(3)
    return number
