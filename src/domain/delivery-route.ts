/** Where deliveries go; captured whole, never merged field by field (C85). */
export interface DeliveryRoute {
  readonly channel: string;
  readonly to?: string;
  readonly accountId?: string;
  readonly threadId?: string;
}
