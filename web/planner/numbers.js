// Numbers with units, written and read as the program does (src/planner/value_text.cc).

function writeNumber(value) {
  if (Number.isNaN(value)) return "not a number";
  if (!Number.isFinite(value)) return value > 0 ? "infinite" : "-infinite";
  const size = Math.abs(value) * (1 + 2 ** -51); // a tie goes up, here and in C++
  if (size !== 0 && (size >= 1e15 || size < 1e-4)) {
    return value.toExponential(3).replace(/e([+-])(\d)$/, "e$10$2");
  }
  const digits = size >= 1e5 ? 6 : size >= 1e4 ? 5 : 4;
  const [mantissa, power] = size.toExponential(digits - 1).split("e");
  const exponent = Number(power);
  const all = mantissa.replace(".", "");
  let whole = exponent < 0 ? "0" : all.slice(0, exponent + 1).padEnd(exponent + 1, "0");
  const rest = (exponent < 0 ? "0".repeat(-exponent - 1) + all : all.slice(exponent + 1)).replace(/0+$/, "");
  whole = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return (value < 0 ? "-" : "") + whole + (rest === "" ? "" : `.${rest}`);
}

export function writeValue(base, { unit, scale }) {
  let number = writeNumber(base / scale);
  if (unit === "") return number;
  if (!unit.startsWith("$")) return `${number} ${unit}`;
  if (number.at(-2) === ".") number += "0"; // cents
  return number.startsWith("-") ? `-$${number.slice(1)}${unit.slice(1)}` : `$${number}${unit.slice(1)}`;
}

// What stands in a field: the number in the input's unit, all its digits.
export function fieldText(base, { scale }) {
  return String(Number((base / scale).toPrecision(12)));
}

// The base value of what a reader typed into the field of an input, or what is wrong with it.
export function readField(text, input) {
  const number = Number(text.trim().replaceAll(",", ""));
  const expected = { positive: "a number above 0", "not negative": "a number from 0", fraction: "0 % to 100 %" }[input.bound];
  if (text.trim() === "" || !Number.isFinite(number)) return { error: `found '${text}', expected ${expected}` };
  const value = number * input.scale;
  const fits = value <= 1e30 && (input.bound === "positive" ? value >= 1e-30 : input.bound === "fraction" ? value >= 0 && value <= 1 : value >= 0);
  return fits ? { value } : { error: `found ${writeValue(value, input)}, expected ${expected}` };
}
