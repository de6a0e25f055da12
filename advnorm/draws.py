r"""Random numbers that are a function of (seed, sample) alone.

The random numbers of a sample must not depend on the other samples of its batch, on the
order of the data or on the number of ranks, and the caller's random state must not change.
So nothing here has a state: each number is a hash of a key and a position (the finalizer of
SplitMix64, Steele et al., 2014), computed for a whole batch at once, with the same bits on
every device. The one exception is :meth:`Draws.fresh`, for attacks called directly.
"""

from dataclasses import dataclass
from zlib import crc32

import torch
from torch import Tensor

_MULTIPLIERS = (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)  # two's complement, 64 bits
_GOLDEN = -0x61C8864680B583EB
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True)
class Draws:
    """A stream of random numbers for each sample of a batch.

    >>> a = Draws.of(0, torch.arange(4))
    >>> b = Draws.of(0, torch.tensor([2]))
    >>> bool((a.uniform(3)[2] == b.uniform(3)[0]).all())
    True
    """

    keys: Tensor
    """One 64-bit key a sample, shape ``(batch,)``."""

    @classmethod
    def of(cls, seed: int, samples: Tensor) -> "Draws":
        """Return the streams of these sample indices under ``seed``."""
        # For torch.compile, plain integers are folded outside of the graph.
        return cls(_mix(samples.long() * _GOLDEN + _mix_int(seed)))

    @classmethod
    def fresh(
        cls, count: int, device: torch.device, generator: torch.Generator | None = None
    ) -> "Draws":
        """Return new streams at each call, from ``generator``.

        Without one they come from torch's global generator of the device, and advance it,
        as ``torch.rand`` does.
        """
        source = device if generator is None else generator.device
        keys = torch.randint(_LARGEST, (count,), generator=generator, device=source)
        return cls(keys.to(device))

    def stream(self, *words: str | int) -> "Draws":
        """Return streams independent of these, named by ``words`` (a purpose, an epoch)."""
        keys = self.keys
        for word in words:
            number = crc32(word.encode()) if isinstance(word, str) else word
            keys = _mix(keys ^ _mix_int(number + 1))
        return Draws(keys)

    def __getitem__(self, rows: Tensor | slice) -> "Draws":
        return Draws(self.keys[rows])

    def __len__(self) -> int:
        return len(self.keys)

    def bits(self, *shape: int) -> Tensor:
        """Return 64 random bits an entry, shape ``(batch, *shape)``."""
        count = 1
        for size in shape:
            count *= size
        positions = torch.arange(1, count + 1, device=self.keys.device) * _GOLDEN
        return _mix(self.keys[:, None] + positions).view(-1, *shape)

    def uniform(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Draw from the open interval (0, 1), shape ``(batch, *shape)``."""
        digits = 52 if dtype == torch.float64 else 23
        return (
            (_shift(self.bits(*shape), 64 - digits).double() + 0.5)
            .mul_(2.0**-digits)
            .to(dtype)
        )

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Draw from the standard normal, shape ``(batch, *shape)``."""
        normal: Tensor = torch.special.ndtri(self.uniform(*shape, dtype=torch.float64))
        return normal.to(dtype)

    def integers(self, high: int, *shape: int) -> Tensor:
        """Draw from 0 to ``high - 1``, shape ``(batch, *shape)``."""
        return (self.uniform(*shape, dtype=torch.float64) * high).long()


def draws_of_call(
    draws: Draws | None, generator: torch.Generator | None, samples: Tensor
) -> Draws:
    """Return the draws of one call of an attack on ``samples``, one row per sample.

    These are ``draws`` where the caller has them. Otherwise they are fresh in every call,
    from ``generator`` or else from torch's global generator.
    """
    if draws is None:
        if not (generator is None or isinstance(generator, torch.Generator)):
            raise ValueError(
                f"generator is a torch.Generator, not {type(generator).__name__}: write "
                "torch.Generator().manual_seed(0)"
            )
        return Draws.fresh(len(samples), samples.device, generator)
    if generator is not None:
        raise ValueError("draws and generator are both set: an attack takes one of them")
    if len(draws) != len(samples):
        raise ValueError(
            f"{len(samples)} samples but {len(draws)} draws: pass one key a sample, as in "
            "Draws.of(seed, torch.arange(len(images)))"
        )
    return draws


def permutation(count: int, seed: int, *words: str | int) -> Tensor:
    """Return 0 to ``count - 1`` in an order that (seed, words) decide."""
    return torch.argsort(Draws.of(seed, torch.arange(count)).stream(*words).keys)


def _shift(z: Tensor, places: int) -> Tensor:
    """Shift right, filling with zeros (``>>`` repeats the sign)."""
    return (z >> places).bitwise_and_((1 << (64 - places)) - 1)


def _mix(z: Tensor) -> Tensor:
    """Scramble ``z`` in place: it is always a temporary of this module."""
    z.bitwise_xor_(_shift(z, 30)).mul_(_MULTIPLIERS[0])
    z.bitwise_xor_(_shift(z, 27)).mul_(_MULTIPLIERS[1])
    return z.bitwise_xor_(_shift(z, 31))


def _mix_int(number: int) -> int:
    """Mix a Python integer as :func:`_mix` does, as a signed 64-bit number."""
    mask = (1 << 64) - 1
    z = (number * _GOLDEN) & mask
    z = ((z ^ (z >> 30)) * (_MULTIPLIERS[0] & mask)) & mask
    z = ((z ^ (z >> 27)) * (_MULTIPLIERS[1] & mask)) & mask
    z ^= z >> 31
    return z - (1 << 64) if z >> 63 else z
