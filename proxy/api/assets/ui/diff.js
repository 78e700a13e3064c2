// What differs between two texts, token by token. Pure.

const MOST = 3000; // tokens of both together; the table has their product

function tokens(text) {
  return text.match(/[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu) ?? [];
}

/** Two lists of {text, changed}: what stands in one only, and what stands in the other only. */
export function diff(before, after) {
  const [one, other] = [tokens(before), tokens(after)];
  if (one.length + other.length > MOST) {
    return [[{ text: before, changed: false }], [{ text: after, changed: false }]];
  }
  const lengths = table(one, other);
  const [left, right] = [[], []];
  let i = 0;
  let j = 0;
  while (i < one.length || j < other.length) {
    if (i < one.length && j < other.length && one[i] === other[j]) {
      push(left, one[i++], false);
      push(right, other[j++], false);
    } else if (j >= other.length || (i < one.length && lengths[i + 1][j] >= lengths[i][j + 1])) {
      push(left, one[i++], true);
    } else {
      push(right, other[j++], true);
    }
  }
  return [left, right];
}

function table(one, other) {
  const lengths = Array.from({ length: one.length + 1 }, () => new Uint16Array(other.length + 1));
  for (let i = one.length - 1; i >= 0; i--) {
    for (let j = other.length - 1; j >= 0; j--) {
      lengths[i][j] =
        one[i] === other[j]
          ? lengths[i + 1][j + 1] + 1
          : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  return lengths;
}

function push(parts, text, changed) {
  const last = parts.at(-1);
  if (last && last.changed === changed) last.text += text;
  else parts.push({ text, changed });
}
