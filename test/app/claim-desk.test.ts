import { beforeAll, beforeEach, expect, test } from "vitest";
import { ClaimDesk, type Seat } from "../../src/app/claim-desk.ts";
import { Doorbell } from "../../src/app/doorbell.ts";
import { type TestApp, testApp } from "../support/app.ts";

let app: TestApp;
let desk: ClaimDesk;
let woken: string[];
const seats: Seat[] = [];
beforeAll(async () => {
  app = await testApp();
});
beforeEach(() => {
  for (const seat of seats.splice(0)) seat.leave();
  desk = new ClaimDesk(app);
  woken = [];
});

/** Parks a claim that notes when it is woken. */
function park(name: string, agentIds: readonly string[] = ["main"]): Seat {
  const seat = desk.takeSeat(agentIds, new Doorbell());
  seats.push(seat);
  sleep(name, seat);
  return seat;
}

function sleep(name: string, seat: Seat): void {
  void seat.sleep().then(() => woken.push(name));
}

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

async function hint(agentId = "main"): Promise<void> {
  app.wakeups.publish([`agent:${agentId}`]);
  await settle();
}

test("a hint wakes one claim, of those for its agent the one that slept longest", async () => {
  park("other agent", ["otter"]);
  park("first");
  park("second", ["otter", "main"]);
  await hint();
  expect(woken).toEqual(["first"]);
  await hint();
  expect(woken).toEqual(["first", "second"]);
});

test("a claim that sleeps again is last in line", async () => {
  const first = park("first");
  park("second");
  await hint();
  first.look();
  sleep("first again", first);
  await hint();
  await hint();
  expect(woken).toEqual(["first", "second", "first again"]);
});

test("a hint that comes while everybody looks for work is kept", async () => {
  const seat = desk.takeSeat(["main"], new Doorbell());
  seats.push(seat);
  seat.look();
  await hint();
  sleep("kept", seat);
  await settle();
  expect(woken).toEqual(["kept"]);
});

test("a claim that leaves without having looked hands its wake-up on", async () => {
  const first = park("first");
  park("second");
  await hint();
  first.leave();
  await settle();
  expect(woken).toEqual(["first", "second"]);
});

test("a claim that looked and leaves hands nothing on; passOn wakes the next", async () => {
  const first = park("first");
  park("second");
  await hint();
  first.look();
  first.leave();
  await settle();
  expect(woken).toEqual(["first"]);
  desk.passOn(["main"]);
  await settle();
  expect(woken).toEqual(["first", "second"]);
});
