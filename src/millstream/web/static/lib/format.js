// Numbers as people read them.

const count = new Intl.NumberFormat("en");

/** 12,345 */
export function integer(value) {
  return count.format(Math.round(value));
}

/** Two or three significant figures: 0.42, 7.3, 128 */
export function rate(value) {
  if (value === null || value === undefined) return "–";
  return value >= 100 ? integer(value) : value >= 10 || value === 0 ? trimmed(value, 1) : trimmed(value, 2);
}

/** A duration in seconds: 0.4 ms, 85 ms, 1.20 s, 3 min 5 s, 2 h 4 min, 3 d 1 h */
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.9995) return `${value < 0.00995 && value > 0 ? trimmed(value * 1000, 1) : Math.round(value * 1000)} ms`;
  if (value < 59.5) return `${trimmed(value, value < 9.95 ? 1 : 0)} s`;
  const whole = Math.round(value);
  if (whole < 3600) return pair(Math.floor(whole / 60), "min", whole % 60, "s");
  if (whole < 86_400) return pair(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  return pair(Math.floor(whole / 86_400), "d", Math.floor((whole % 86_400) / 3600), "h");
}

/** 23 kB, 98 MB, 1.5 GB, in powers of 1000, as the command line writes them */
export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let power = 0;
  let scaled = value;
  while (scaled >= 999.5 && power < units.length - 1) {
    scaled /= 1000;
    power += 1;
  }
  return `${scaled.toFixed(power > 2 ? 1 : 0)} ${units[power]}`;
}

/** A share of 1: 37 % */
export function percent(value) {
  return value === null || value === undefined ? "–" : `${trimmed(value * 100, value > 0 && value < 0.1 ? 1 : 0)} %`;
}

/** When something was, by the clock or by the day. */
export function moment(milliseconds) {
  const date = new Date(milliseconds);
  const today = new Date().toDateString() === date.toDateString();
  return today
    ? date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })
    : date.toLocaleDateString([], { day: "numeric", month: "short", year: "numeric" });
}

/** "1 token", "2 tokens" */
export function plural(value, one, many = `${one}s`) {
  return `${integer(value)} ${value === 1 ? one : many}`;
}

function trimmed(value, digits) {
  return String(Number(value.toFixed(digits)));
}

function pair(large, largeUnit, small, smallUnit) {
  return small ? `${large} ${largeUnit} ${small} ${smallUnit}` : `${large} ${largeUnit}`;
}
