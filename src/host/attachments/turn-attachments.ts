import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { ConnectError } from "@connectrpc/connect";
import type { AttachmentFile, AttachmentReceipt } from "#gen/agentsessions/v1/attachment_pb.js";
import type { Run } from "#gen/agentsessions/v1/run_pb.js";
import { isCut } from "../../client/errors.ts";
import { type AgentSessions, AttachmentDamaged } from "../../client/index.ts";
import { HostError } from "../errors.ts";
import type { TurnAttachments } from "../turn.ts";
import { codeOf, UnsafePath } from "./held-directory.ts";
import { placeFiles } from "./place-files.ts";
import type { Workspaces } from "./workspaces.ts";

export interface AttachmentMeans {
  readonly run: Run;
  readonly receipt: AttachmentReceipt | undefined;
  /** Without one, files are read from the service alone. */
  readonly workspace: string | undefined;
  readonly workspaces: Pick<Workspaces, "note">;
  readonly sessions: AgentSessions;
}

/** Makes the workspace and the files given to the session ready for its turn. Throws HostError when that cannot be done. */
export async function prepareAttachments(means: AttachmentMeans): Promise<TurnAttachments> {
  const { run, receipt, workspace, workspaces, sessions } = means;
  if (!receipt || receipt.files.length === 0) {
    if (workspace !== undefined) await makeWorkspace(workspace);
    return { directory: undefined, relativeDirectory: "", files: [] };
  }
  const fetch = async ({ attachmentId }: AttachmentFile) => (await sessions.readAttachment(attachmentId)).data;
  const directory =
    workspace === undefined
      ? undefined
      : await placeFiles({ workspace, run, receipt, fetch })
          .catch((error: unknown) => {
            throw toHostError("the attachments were not put into the workspace", error);
          })
          .finally(() => workspaces.note(workspace));
  return {
    directory,
    relativeDirectory: receipt.relativeDirectory,
    files: receipt.files.map((file) => ({
      name: file.name,
      path: directory === undefined ? undefined : join(directory, file.name),
      bytes: Number(file.bytes),
      sha256: file.sha256,
      mimeType: file.mimeType,
      read: () => fetch(file),
    })),
  };
}

async function makeWorkspace(workspace: string): Promise<void> {
  await mkdir(workspace, { recursive: true, mode: 0o700 }).catch((error: unknown) => {
    throw toHostError("the workspace could not be made", error);
  });
}

/** What may pass, such as a full disk or a service that is away, may be tried again; what is not what it must be, or was refused, may not. */
function toHostError(what: string, error: unknown): HostError {
  const isAnswer = error instanceof ConnectError && !isCut(error);
  const retryable = !(isAnswer || error instanceof UnsafePath || error instanceof AttachmentDamaged);
  const system = codeOf(error);
  const reason = typeof system === "string" && /^E[A-Z]+$/.test(system) ? system : (error as Error).message;
  return new HostError(`${what}: ${reason}`, { retryable, cause: error });
}
