import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Client } from "@connectrpc/connect";
import type { Message } from "#gen/agentsessions/v1/message_pb.js";
import type { Run } from "#gen/agentsessions/v1/run_pb.js";
import type { ListRunsRequestSchema, RunService } from "#gen/agentsessions/v1/run_service_pb.js";
import type { Session } from "#gen/agentsessions/v1/session_pb.js";
import type {
  Agent,
  ListAgentsRequestSchema,
  ListMessagesRequestSchema,
  ListSessionsRequestSchema,
  SessionService,
} from "#gen/agentsessions/v1/session_service_pb.js";

/** A list request without its position; the page size stays, for those who care. */
type Filter<Request> = Omit<Request, "pageToken" | "$typeName" | "$unknown">;

export type SessionFilter = Filter<MessageInitShape<typeof ListSessionsRequestSchema>>;
export type RunFilter = Filter<MessageInitShape<typeof ListRunsRequestSchema>>;
export type AgentFilter = Filter<MessageInitShape<typeof ListAgentsRequestSchema>>;
export type MessageFilter = Filter<MessageInitShape<typeof ListMessagesRequestSchema>>;

export function eachSession(client: Client<typeof SessionService>, filter: SessionFilter): AsyncGenerator<Session> {
  return eachItem(async (pageToken) => {
    const page = await client.listSessions({ ...filter, pageToken });
    return { items: page.sessions, nextPageToken: page.nextPageToken };
  });
}

export function eachRun(client: Client<typeof RunService>, filter: RunFilter): AsyncGenerator<Run> {
  return eachItem(async (pageToken) => {
    const page = await client.listRuns({ ...filter, pageToken });
    return { items: page.runs, nextPageToken: page.nextPageToken };
  });
}

export function eachAgent(client: Client<typeof SessionService>, filter: AgentFilter): AsyncGenerator<Agent> {
  return eachItem(async (pageToken) => {
    const page = await client.listAgents({ ...filter, pageToken });
    return { items: page.agents, nextPageToken: page.nextPageToken };
  });
}

/** A page holds its oldest message first; walking back in time turns each around. */
export function eachMessage(client: Client<typeof SessionService>, filter: MessageFilter): AsyncGenerator<Message> {
  return eachItem(async (pageToken) => {
    const page = await client.listMessages({ ...filter, pageToken });
    return { items: page.messages.reverse(), nextPageToken: page.olderPageToken };
  });
}

/** An empty token is the only sign of the end: a page may be short, or empty. */
async function* eachItem<Item>(
  readPage: (pageToken: string) => Promise<{ items: readonly Item[]; nextPageToken: string }>,
): AsyncGenerator<Item> {
  let pageToken = "";
  do {
    const page = await readPage(pageToken);
    yield* page.items;
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
}
