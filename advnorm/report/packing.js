// Read the numbers that packing.py wrote: `width` bits each, most significant bit first.

function unpack({ width, count, data }) {
  const bytes = atob(data), numbers = new Uint32Array(count);
  let buffer = 0, bits = 0, place = 0;
  for (let i = 0; i < count; i++) {
    while (bits < width) {
      buffer = (buffer << 8) | bytes.charCodeAt(place++);
      bits += 8;
    }
    bits -= width;
    numbers[i] = buffer >>> bits;
    buffer &= (1 << bits) - 1;
  }
  return numbers;
}
