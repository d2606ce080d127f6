// The frames of a WebSocket, read from the bytes of one direction.

/**
 * Splits bytes into frames.
 * @param {(frame: { bytes: Buffer, text: string | undefined }) => void} onFrame gets each frame as
 * it came, and the text of a text frame
 * @returns {(chunk: Buffer) => void}
 */
export function frames(onFrame) {
  let rest = Buffer.alloc(0);
  return (chunk) => {
    rest = Buffer.concat([rest, chunk]);
    for (let frame; (frame = first(rest)); ) {
      rest = rest.subarray(frame.bytes.length);
      onFrame(frame);
    }
  };
}

/** The first frame, if all of it is there. */
function first(bytes) {
  if (bytes.length < 2) return undefined;
  const [kind, isMasked] = [bytes[0] & 15, bytes[1] > 127];
  const [length, at] = lengthOf(bytes);
  const start = at + (isMasked ? 4 : 0);
  if (bytes.length < at || bytes.length < start + length) return undefined;
  const payload = Buffer.from(bytes.subarray(start, start + length));
  if (isMasked) payload.forEach((byte, n) => (payload[n] = byte ^ bytes[at + (n % 4)]));
  return {
    bytes: bytes.subarray(0, start + length),
    text: kind === 1 ? payload.toString() : undefined,
  };
}

/** The length of the payload, and the place behind it. */
function lengthOf(bytes) {
  const short = bytes[1] & 127;
  if (short === 126 && bytes.length >= 4) return [bytes.readUInt16BE(2), 4];
  if (short === 127 && bytes.length >= 10) return [Number(bytes.readBigUInt64BE(2)), 10];
  return short < 126 ? [short, 2] : [Infinity, 2];
}
