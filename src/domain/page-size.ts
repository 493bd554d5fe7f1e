/** The one rule for every list size: absent, zero or negative = default, above the maximum = the maximum (S3.1, S4.1, C109). */
export function clampPageSize(requested: number | undefined, bounds = { default: 50, max: 200 }): number {
  const whole = Math.floor(requested ?? 0);
  return whole > 0 ? Math.min(whole, bounds.max) : bounds.default;
}
